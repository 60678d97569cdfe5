#include "server/fetch/s3_xml.h"

#include <expat.h>
#include <limits.h>

struct reader {
    XML_Parser x;
    const struct s3_xml_events *ev;
    struct buf text;
    unsigned depth;
    int rc;
    const char *why; /* of an end that is ours */
};

static void stop_xml_reader(struct reader *r, int rc, const char *why)
{
    if (r->rc == 0) {
        r->rc = rc;
        r->why = why;
        XML_StopParser(r->x, XML_FALSE);
    }
}

static void XMLCALL on_xml_open(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    struct reader *r = arg;

    (void)attributes;
    if (r->rc != 0) {
        return;
    }
    if (r->depth == S3_XML_DEPTH) {
        stop_xml_reader(r, E_INVALID, "the XML has too many nested elements");
        return;
    }
    buf_clear(&r->text);
    if (r->ev->on_open != NULL) {
        int rc = r->ev->on_open(r->ev->arg, slice_str(name), r->depth);
        if (rc != 0) {
            stop_xml_reader(r, rc, NULL);
        }
    }
    r->depth++;
}

static void XMLCALL on_xml_close(void *arg, const XML_Char *name)
{
    struct reader *r = arg;
    int rc;

    if (r->rc != 0) {
        return;
    }
    r->depth--;
    rc = r->ev->on_close(r->ev->arg, slice_str(name),
                         slice_of(r->text.n != 0 ? r->text.p : "", r->text.n), r->depth);
    if (rc != 0) {
        stop_xml_reader(r, rc, NULL);
    }
    buf_clear(&r->text);
}

static void XMLCALL on_text(void *arg, const XML_Char *p, int n)
{
    struct reader *r = arg;

    if (r->rc == 0) {
        buf_add(&r->text, p, (size_t)n);
        if (r->text.rc != 0) {
            stop_xml_reader(r, E_INVALID, "the XML has a text that is too long");
        }
    }
}

/* What an entity could become is not worth knowing. */
static void XMLCALL on_doctype(void *arg, const XML_Char *name, const XML_Char *system,
                               const XML_Char *public, int subset)
{
    (void)name;
    (void)system;
    (void)public;
    (void)subset;
    stop_xml_reader(arg, E_INVALID, "the XML has a document type, which S3 never sends");
}

int s3_xml_read(struct slice doc, const struct s3_xml_events *ev, struct err *e)
{
    struct reader r = {.ev = ev, .text = BUF_INIT(S3_XML_TEXT)};
    enum XML_Status ok;
    int rc = 0;

    if (doc.n > INT_MAX) {
        return err_set(e, E_INVALID, "the XML is too large: %zu bytes", doc.n);
    }
    r.x = XML_ParserCreate(NULL);
    CHECK(r.x != NULL);
    XML_SetUserData(r.x, &r);
    XML_SetElementHandler(r.x, on_xml_open, on_xml_close);
    XML_SetCharacterDataHandler(r.x, on_text);
    XML_SetStartDoctypeDeclHandler(r.x, on_doctype);
    ok = XML_Parse(r.x, doc.n != 0 ? doc.p : "", (int)doc.n, 1);
    if (r.rc != 0) {
        rc = r.why != NULL ? err_set(e, r.rc, "%s", r.why) : r.rc;
    } else if (ok != XML_STATUS_OK) {
        rc = err_set(e, E_INVALID, "invalid XML: %s in line %lu",
                     XML_ErrorString(XML_GetErrorCode(r.x)), XML_GetCurrentLineNumber(r.x));
    }
    XML_ParserFree(r.x);
    buf_free(&r.text);
    return rc;
}
