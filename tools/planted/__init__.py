"""What tools/faults is made of: faults made from the source, the tests of each room, runs of them, the page."""
