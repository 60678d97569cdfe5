#include "server/serve/entrance.h"

const struct entrance *entrance_of(const struct entrance *const *doors, const struct http_req *req)
{
    while ((*doors)->asked != NULL && !(*doors)->asked(req)) {
        doors++;
    }
    return *doors;
}
