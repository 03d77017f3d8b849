"""What is wrong with a silo's set-up, named: the machine, the way out, each server. Changes nothing."""
