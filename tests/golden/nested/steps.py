def verify(text, label):
    return {"sure": label in text}
