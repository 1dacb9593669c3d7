"""Headers of weight files: which tensors a checkpoint holds, without reading one of them.

`source` says where the bytes come from, `tensors` what the readers return, `safetensors` and `gguf` read the formats.
A file is a stranger: every length is held against a bound before anything of that length is read or kept, and what is
wrong with it is one sentence that names the file.
"""
