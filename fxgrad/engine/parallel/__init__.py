"""Many entries and many devices: mapped axes, and the operations that communicate over them."""
