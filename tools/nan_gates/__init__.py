"""What tools/nans measures: the corpus of NaNs, singular points, and the time that safety takes."""
