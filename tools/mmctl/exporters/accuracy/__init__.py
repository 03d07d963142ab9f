"""Is a converted file as good as the FP32 file, and is it faster?

options  what model.yaml says          rules    which metric for which output, which limit
origin   files that samples come from  metrics  scores and their 95 % intervals
read     samples of calibration/       judge    a converted file's answers beside FP32's
data     samples as values             speed    CPU time, in turns with the FP32 file
gate     accuracy on those samples
"""
