#include "kernels.h"

EXPORT int64_t kernels_version(void) { return 1; }
