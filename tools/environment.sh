# Finds or makes the virtual environment and installs fxgrad into it; sourced by tools/test and tools/demo.
#
# `use_environment EXTRA` ("" for fxgrad alone) leaves the interpreter to run in $python. It takes the virtual environment that is active,
# or else .venv, which it makes. It installs only what is missing or no longer as pyproject.toml says.

if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; else bold="" plain=""; fi
say() { printf '%s==> %s%s\n' "$bold" "$*" "$plain"; }
fail() { printf '\n%s: %s\n' "$0" "$*" >&2; exit 1; }

use_environment() {
  if [ -n "${VIRTUAL_ENV:-}" ]; then
    python=$VIRTUAL_ENV/bin/python
    is_new_enough "$python" || fail "the active virtual environment $VIRTUAL_ENV has no Python 3.11 or later." \
      "Run 'deactivate' and try again: an environment in .venv is made for you."
  else
    python=$PWD/.venv/bin/python
    is_new_enough "$python" || make_environment
  fi
  local environment=${python%/bin/python}
  local stamp=$environment/fxgrad-pyproject.sha256 wanted missing extra=${1:+[$1]}
  wanted=$("$python" -c 'import hashlib; print(hashlib.sha256(open("pyproject.toml", "rb").read()).hexdigest())')
  missing=$(missing_packages "$1")
  if [ -n "$missing" ] || { [ -f "$stamp" ] && [ "$(cat "$stamp")" != "$wanted" ]; }; then
    say "installing fxgrad$extra into ${environment#"$PWD"/}, which may take a minute or two"
    [ -z "$missing" ] || say "missing: ${missing//$'\n'/, }"
    "$python" -m pip --version >/dev/null 2>&1 || "$python" -m ensurepip >/dev/null 2>&1 \
      || fail "$python has no pip. Install pip there, or deactivate that environment."
    "$python" -m pip install --quiet --disable-pip-version-check --editable ".$extra" \
      || fail "pip could not install fxgrad$extra; its own message is above."
  fi
  printf '%s\n' "$wanted" >"$stamp" || true  # an environment that cannot be written to needs no note of what was written
}

# Runs it, for a command of that name may exist and refuse, as pyenv's do.
is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

make_environment() {
  local base="" candidate
  for candidate in "${PYTHON:-python3.13}" python3.13 python3.12 python3.11 python3 python python3.14; do
    if is_new_enough "$candidate"; then base=$candidate; break; fi
  done
  [ -n "$base" ] || fail "no Python 3.11 or later found. Install one, or name it: PYTHON=/path/to/python $0"
  say "making a virtual environment in .venv with $("$base" --version)"
  # Systems that ship Python in parts may lack ensurepip; the pip of the system can then fill the environment.
  "$base" -m venv --clear .venv >/dev/null 2>&1 && return
  "$base" -m venv --clear --without-pip .venv && "$base" -m pip --python .venv/bin/python install --quiet pip && return
  rm -rf .venv
  fail "$base cannot make a virtual environment. Install its venv module (on Debian and Ubuntu:" \
    "apt install python3-venv), or activate an environment of your own."
}

# Prints the requirements that the environment does not meet, one a line. With -P this folder is not searched, where
# building leaves a description of fxgrad that is no installation.
missing_packages() {
  "$python" -P - "$1" <<'PROGRAM'
import json
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

try:
    from packaging.requirements import Requirement
except ImportError:
    try:
        from pip._vendor.packaging.requirements import Requirement
    except ImportError:
        sys.exit(print("pip"))

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]


def is_here():
    """Whether the fxgrad that is installed is this very folder."""
    try:
        origin = json.loads(distribution("fxgrad").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return False
    return origin.get("url") == Path.cwd().as_uri() and origin.get("dir_info", {}).get("editable", False)


def is_met(requirement):
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False


def requirements(extra):
    for line in project["optional-dependencies"][extra]:
        requirement = Requirement(line)
        if requirement.name == project["name"]:
            for inner in sorted(requirement.extras):
                yield from requirements(inner)
        else:
            yield requirement


if not is_here():
    print("fxgrad")
for requirement in [*map(Requirement, project["dependencies"]), *(requirements(sys.argv[1]) if sys.argv[1] else ())]:
    if not is_met(requirement) and (requirement.marker is None or requirement.marker.evaluate()):
        print(requirement)
PROGRAM
}
