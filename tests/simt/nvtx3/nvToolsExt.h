/* nvToolsExt.h - as much of NVTX as we use: ranges are lines of the trace
 * (tests/simt/runtime.h). */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif
int nvtxRangePushA(const char *name);
int nvtxRangePop(void);
#ifdef __cplusplus
}
#endif
