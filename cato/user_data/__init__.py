"""Your own simulation data: files in, samples of a recognised problem out.

`read_samples` turns a path and the names of its fields into `UserSamples`, whatever the format;
`recognise` says what they are samples of; `open_user_data` opens a path once for a training;
`inspect_samples` looks for what is wrong with them; `write_predictions` goes the way back.
"""
