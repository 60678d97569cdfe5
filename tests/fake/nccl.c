/* libnccl.so.2 that only tells its version: $FAKE_NCCL, 22304 without. */
#include <stdlib.h>

int ncclGetVersion(int *version);

int ncclGetVersion(int *version)
{
    const char *text = getenv("FAKE_NCCL");

    *version = text != NULL ? atoi(text) : 22304;
    return 0;
}
