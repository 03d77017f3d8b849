"""A share server: holds one share of each silo's update, and releases its share of one sum a round."""
