# What the CUDA half needs, when it is there: sets CUDA_OBJECTS and L_CUDA, both empty on a CPU-only machine.
CUDA_OBJECTS :=
L_CUDA       :=
