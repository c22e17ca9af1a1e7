"""What tools/xray is made of: the programs that memory is measured on, the measurements, and the page."""
