"""The demonstration: four hospitals, three servers and one researcher as real processes on one machine."""
