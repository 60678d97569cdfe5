#include "server/http/conn.h"

int h2_start(struct conn *c)
{
    (void)c;
    return E_UNSUPPORTED;
}
