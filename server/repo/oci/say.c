#include "server/repo/oci/say.h"

#include "common/codec/form.h"

enum { NS_MAX = 300 };

void oci_fields(const struct http_req *req, struct plan *p, struct arena *a)
{
    struct slice query = req->query;
    struct slice ns = form_find(&query, "ns", NS_MAX, a);

    plan_field(p, SLICE("docker-distribution-api-version"), SLICE("registry/2.0"));
    if (ns.n != 0) { /* it scoped the request */
        plan_field(p, SLICE("oci-namespace"), plan_line(ns, a));
    }
}

void oci_say(struct plan *p, enum oci_code c, struct slice message, struct arena *a)
{
    plan_reply(p, oci_code_status(c), oci_errors(c, message, a));
    p->content_type = OCI_ERRORS_TYPE;
    if (p->status == 405) {
        p->allow = SLICE("GET, HEAD");
    }
    plan_field(p, SLICE("docker-distribution-api-version"), SLICE("registry/2.0"));
    plan_field(p, SLICE("cache-control"), SLICE("no-store"));
}
