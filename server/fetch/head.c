#include "server/fetch/head.h"

#include "server/fetch/s3.h"

struct slice origin_head_field(const struct origin_head *h, const char *name)
{
    for (size_t i = 0; i < h->nfields; i++) {
        if (slice_eqs(h->fields[i].name, name)) {
            return h->fields[i].value;
        }
    }
    return SLICE_NONE;
}

bool origin_head_is_html(const struct origin_head *h)
{
    struct slice type = origin_head_field(h, "content-type");

    return slice_ieq(slice_trim(slice_cut(&type, ';')), SLICE("text/html"));
}

bool origin_head_digest(const struct origin_head *h, struct digest *out)
{
    struct slice field = origin_head_field(h, "repr-digest");

    if (field.p == NULL) {
        field = origin_head_field(h, "digest");
    }
    if (field.p != NULL) {
        return digest_from_field(field, out);
    }
    field = origin_head_field(h, "docker-content-digest");
    if (field.p != NULL) {
        return slice_starts(field, SLICE("sha256:")) && digest_parse(slice_from(field, 7), out);
    }
    field = origin_head_field(h, "x-amz-checksum-sha256");
    return h->status == 200 && field.p != NULL && /* of a part it may be the part's */
           s3_checksum(field, origin_head_field(h, "x-amz-checksum-type"), out);
}
