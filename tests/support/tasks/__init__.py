"""Task modules that tests serve or run by name, each also as a plain file."""
