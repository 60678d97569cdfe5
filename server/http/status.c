#include "server/http/status.h"

#include "common/base/err.h"

static int of_request(int rc)
{
    switch (rc) {
    case E_NOTFOUND:
        return 404;
    case E_DENIED:
        return 403;
    case E_INVALID:
    case E_TOOBIG:
        return 400;
    default:
        return 500;
    }
}

static int of_origin(int rc)
{
    switch (rc) {
    case E_INVALID:
    case E_DENIED:
    case E_TOOBIG:
    case E_CORRUPT:
    case E_PROTOCOL:
    case E_UNSUPPORTED:
    case E_CONFIG: /* it is not what the configuration says: no such bucket */
        return 502;
    default:
        return 500;
    }
}

int status_of_error(int rc, enum status_about about)
{
    switch (rc) {
    case E_AGAIN:
    case E_BUSY:
    case E_TIMEOUT:
    case E_CANCELLED:
    case E_CHANGED:
        return 503;
    case E_NETWORK:
        return 502;
    case E_NOSPACE:
        return 507;
    case E_REFUSED:
        return 403;
    default:
        return about == STATUS_REQUEST  ? of_request(rc)
               : about == STATUS_ORIGIN ? of_origin(rc)
                                        : 500;
    }
}
