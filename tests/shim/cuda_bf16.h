// Stands in for the header of that name: its types are in the shim.
#include "cuda_shim.h"
