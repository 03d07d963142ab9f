"""Is a converted file as good as the FP32 file, and is it faster?

options  what model.yaml says          rules    which metric for which output, which limit
read     samples of calibration/       metrics  scores and their 95 % intervals
data     samples as values             judge    a converted file's answers beside FP32's
gate     accuracy on those samples     speed    CPU time, in turns with the FP32 file
"""
