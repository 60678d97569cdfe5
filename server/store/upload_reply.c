#include "server/store/upload_reply.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/codec/jwrite.h"

void upload_reply_free(struct upload_reply *r)
{
    buf_free(&r->body);
}

int upload_trouble(struct upload_reply *out, int rc, struct err *e)
{
    if (rc != E_NOSPACE) {
        return rc;
    }
    upload_refuse(out, 507, "no space left on the mirror: %s", e != NULL ? e->text : "");
    return 0;
}

void upload_refuse(struct upload_reply *out, int status, const char *fmt, ...)
{
    struct buf text = BUF_INIT(1024);
    struct jwrite j = JWRITE_INTO(&out->body);
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(&text, fmt, ap);
    va_end(ap);
    out->status = status;
    buf_clear(&out->body);
    jwrite_open(&j, '{');
    jwrite_key(&j, SLICE("error"));
    jwrite_text(&j, buf_slice(&text));
    jwrite_close(&j, '}');
    buf_byte(&out->body, '\n');
    buf_free(&text);
}

void upload_say(struct upload_reply *out, int status, const char *json)
{
    out->status = status;
    buf_clear(&out->body);
    buf_str(&out->body, json);
}

void upload_reply_tree(struct upload_reply *out, int status, const struct snap *sn)
{
    struct jwrite j = JWRITE_INTO(&out->body);
    char hex[DIGEST_HEX + 1];
    char version[24];

    digest_format(&sn->root, hex);
    snprintf(version, sizeof version, "v%" PRIu64, sn->seq);
    snprintf(out->etag, sizeof out->etag, "\"%s\"", hex);
    out->status = status;
    buf_clear(&out->body);
    jwrite_open(&j, '{');
    jwrite_key(&j, SLICE("root"));
    jwrite_text(&j, slice_str(hex));
    jwrite_key(&j, SLICE("version"));
    jwrite_text(&j, slice_str(version));
    jwrite_key(&j, SLICE("entries"));
    jwrite_u64(&j, sn->entries);
    jwrite_close(&j, '}');
    buf_byte(&out->body, '\n');
}

void upload_reply_file(struct upload_reply *out, int status, struct slice path,
                       const struct session_file *f)
{
    struct jwrite j = JWRITE_INTO(&out->body);
    char hex[DIGEST_HEX + 1];

    out->status = status;
    out->offset_known = true;
    out->complete = f->sealed;
    out->offset = f->bytes;
    buf_clear(&out->body);
    jwrite_open(&j, '{');
    jwrite_key(&j, SLICE("path"));
    jwrite_text(&j, path);
    jwrite_key(&j, f->sealed ? SLICE("size") : SLICE("offset"));
    jwrite_u64(&j, f->bytes);
    if (f->sealed) {
        digest_format(&f->digest, hex);
        jwrite_key(&j, SLICE("sha256"));
        jwrite_text(&j, slice_str(hex));
    }
    jwrite_close(&j, '}');
    buf_byte(&out->body, '\n');
}
