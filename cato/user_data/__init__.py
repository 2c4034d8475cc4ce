"""Users' simulation data: files in, samples of a recognised problem out, predictions back.

    path → reader → xarray.Dataset with named dimensions (`axes`) → `assemble` → `UserSamples`

`read_samples` does this for any format; `recognise` says which problem they are samples of;
`open_user_data` fingerprints, reads and splits a path once for a training; `inspect_samples` looks
for problems with the data; `write_predictions` writes back in the format of the source.
"""
