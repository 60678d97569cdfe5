#include "server/upload/upload_reply.h"

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
    upload_refuse(out, 507, "no space left on this mirror: %s", e != NULL ? e->text : "");
    return 0;
}

void upload_refuse(struct upload_reply *out, int status, const char *fmt, ...)
{
    struct buf text = BUF_INIT(1024);
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(&text, fmt, ap);
    va_end(ap);
    out->status = status;
    buf_clear(&out->body);
    jwrite_open(&out->body, NULL, '{');
    jwrite_text(&out->body, "error", buf_slice(&text));
    jwrite_close(&out->body, '}');
    buf_byte(&out->body, '\n');
    buf_free(&text);
}

void upload_refuse_gone(struct upload_reply *out)
{
    upload_refuse(out, 404, "no such upload: it never existed, or it has ended");
}

void upload_reply_tree(struct upload_reply *out, int status, const struct snap *sn)
{
    char hex[DIGEST_HEX + 1];
    char version[24];

    snprintf(version, sizeof version, "v%" PRIu64, sn->seq);
    digest_format(&sn->root, hex);
    snprintf(out->etag, sizeof out->etag, "\"%s\"", hex);
    out->status = status;
    buf_clear(&out->body);
    jwrite_open(&out->body, NULL, '{');
    jwrite_hex(&out->body, "root", sn->root.b, DIGEST_BYTES);
    jwrite_str(&out->body, "version", version);
    jwrite_u64(&out->body, "entries", sn->entries);
    jwrite_close(&out->body, '}');
    buf_byte(&out->body, '\n');
}

void upload_reply_file(struct upload_reply *out, int status, struct slice path,
                       const struct session_file *f)
{
    out->status = status;
    out->offset_known = true;
    out->complete = f->sealed;
    out->offset = f->bytes;
    buf_clear(&out->body);
    jwrite_open(&out->body, NULL, '{');
    jwrite_text(&out->body, "path", path);
    jwrite_u64(&out->body, f->sealed ? "size" : "offset", f->bytes);
    if (f->sealed) {
        jwrite_hex(&out->body, "sha256", f->digest.b, DIGEST_BYTES);
    }
    jwrite_close(&out->body, '}');
    buf_byte(&out->body, '\n');
}
