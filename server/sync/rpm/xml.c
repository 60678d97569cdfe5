#include "server/sync/rpm/xml.h"

#include <expat.h>
#include <stdlib.h>

#include "common/base/buf.h"

enum {
    DEPTH_MAX = 32,
    TEXT_BYTES = 16 << 10, /* of one element: more is dropped, what is asked for is short */
    PIECE_BYTES = 64 << 10,
    TAG_BYTES = 1 << 20, /* expat keeps a tag until its end */
};

struct xml {
    struct xml_events ev;
    XML_Parser p;
    unsigned depth;
    struct buf text;
    uint64_t fed;
    int rc;
    struct err *e;
};

static void stop(struct xml *x, int rc)
{
    x->rc = rc;
    XML_StopParser(x->p, XML_FALSE);
}

static const char *bare(const char *name)
{
    const char *colon = strrchr(name, ':');

    return colon != NULL ? colon + 1 : name;
}

static void XMLCALL on_open(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    struct xml *x = arg;
    int rc;

    if (x->rc != 0) {
        return; /* expat may have some more to say */
    }
    buf_clear(&x->text);
    if (++x->depth > DEPTH_MAX) {
        stop(x, err_set(x->e, E_TOOBIG, "the index nests deeper than %d", DEPTH_MAX));
        return;
    }
    rc = x->ev.on_open(x->ev.arg, x->depth, bare(name), attributes, x->e);
    if (rc != 0) {
        stop(x, rc);
    }
}

static void XMLCALL on_end(void *arg, const XML_Char *name)
{
    struct xml *x = arg;
    int rc;

    if (x->rc != 0) {
        return;
    }
    rc = x->ev.on_end(x->ev.arg, x->depth--, bare(name),
                      slice_of(x->text.n != 0 ? x->text.p : "", x->text.n), x->e);
    buf_clear(&x->text);
    if (rc != 0) {
        stop(x, rc);
    }
}

static void XMLCALL on_text(void *arg, const XML_Char *p, int n)
{
    struct xml *x = arg;

    buf_add(&x->text, p, (size_t)n);
}

static void XMLCALL on_doctype(void *arg, const XML_Char *name, const XML_Char *system,
                               const XML_Char *public_id, int internal)
{
    struct xml *x = arg;

    (void)name;
    (void)system;
    (void)public_id;
    (void)internal;
    stop(x, err_set(x->e, E_INVALID, "the index has a document type, which none needs"));
}

struct xml *xml_open(const struct xml_events *ev)
{
    struct xml *x = NEW(struct xml);

    x->ev = *ev;
    x->text = BUF_INIT(TEXT_BYTES);
    x->p = XML_ParserCreate(NULL);
    CHECK(x->p != NULL);
    XML_SetUserData(x->p, x);
    XML_SetElementHandler(x->p, on_open, on_end);
    XML_SetCharacterDataHandler(x->p, on_text);
    XML_SetStartDoctypeDeclHandler(x->p, on_doctype);
    return x;
}

static int verdict(struct xml *x, enum XML_Status status, struct err *e)
{
    if (x->rc != 0) {
        return x->rc;
    }
    return status == XML_STATUS_OK ? 0
                                   : err_set(e, E_INVALID, "the index is no XML: %s",
                                             XML_ErrorString(XML_GetErrorCode(x->p)));
}

int xml_feed(struct xml *x, struct slice bytes, struct err *e)
{
    int rc = 0;

    x->e = e;
    while (rc == 0 && bytes.n != 0) {
        size_t n = bytes.n < PIECE_BYTES ? bytes.n : PIECE_BYTES;
        rc = verdict(x, XML_Parse(x->p, bytes.p, (int)n, 0), e);
        bytes = slice_from(bytes, n);
        x->fed += n;
        if (rc == 0 && x->fed - (uint64_t)XML_GetCurrentByteIndex(x->p) > TAG_BYTES) {
            rc = err_set(e, E_TOOBIG, "the index has a tag of more than %d bytes", TAG_BYTES);
        }
    }
    return rc;
}

int xml_finish(struct xml *x, struct err *e)
{
    x->e = e;
    return verdict(x, XML_Parse(x->p, "", 0, 1), e);
}

void xml_close(struct xml **xp)
{
    struct xml *x = *xp;

    *xp = NULL;
    if (x != NULL) {
        XML_ParserFree(x->p);
        buf_free(&x->text);
        free(x);
    }
}

const char *xml_attribute(const char **attributes, const char *name)
{
    for (; attributes[0] != NULL; attributes += 2) {
        if (strcmp(attributes[0], name) == 0) {
            return attributes[1];
        }
    }
    return NULL;
}
