"""Every public function held to jax's of the same name: values, dtypes, derivatives, batching, compilation."""
