"""What maintains the project: the form of its notebooks, the picture in its README."""
