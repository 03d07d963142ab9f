"""ONNX files, read without their weights, and the rules that compare configs with them."""
