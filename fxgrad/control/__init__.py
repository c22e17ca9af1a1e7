"""Operations that hold programs: named and compiled calls, checkpoints, functions with custom derivatives.

Only here do operations and interpreters meet. `flat` is the bridge between Python calls with containers and the
flat lists of the IR, which the public functions of `api` cross too.
"""
