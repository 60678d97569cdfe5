/* python_form.c - one distribution as twine and uv publish send it: a form whose fields come in any
 * order, the file among them.
 *
 * Used are name, version, filetype, requires_python, the digests, content and gpg_signature. The
 * other fields repeat what is in the file; they are skipped, up to a bound.
 */
#include <inttypes.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <time.h>

#include "common/codec/jwrite.h"
#include "common/codec/multipart.h"
#include "common/codec/utf8.h"
#include "common/hash/blake2b.h"
#include "server/repo/hosted/hosted.h"
#include "server/repo/hosted/python.h"
#include "server/repo/python/distribution.h"
#include "server/repo/python/metadata.h"
#include "server/repo/python/name.h"
#include "server/repo/python/wheel.h"
#include "server/store/blob.h"
#include "server/upload/upload.h"
#include "server/upload/upload_reply.h"

struct python_inside {
    struct arena *arena;
    struct slice project; /* normalized; given */
    /* found: */
    struct slice requires; /* python */
    struct buf metadata;   /* of a wheel */
};

/* --- what a distribution says of itself ---
 *
 * What a distribution that was sent is, whatever its name and its form say: a wheel tells it by its
 * METADATA, of a source archive only the kind is looked at, for installers build it to know.
 *
 * owns     metadata; python_inside_fini(). Slices live with it, or in the arena
 * threads  a pool thread; reads the file
 * errors   a status in *out: the file is not what it should be, in words
 */

enum {
    WHEEL_PART_BYTES = 33 << 20, /* the longest directory, and more */
    REQUIRES_BYTES = 4096,
};

static void python_inside_init(struct python_inside *in, struct arena *a)
{
    *in = (struct python_inside){.arena = a, .metadata = BUF_INIT(WHEEL_METADATA_BYTES + 1)};
}

static void python_inside_fini(struct python_inside *in)
{
    buf_free(&in->metadata);
}

static bool inside_require(struct upload_reply *out, bool holds, const char *what)
{
    if (!holds) {
        upload_refuse(out, 400, "%s", what);
    }
    return holds;
}

static int on_requires(void *arg, struct slice requirement, struct err *e)
{
    (void)arg;
    (void)requirement;
    (void)e;
    return 0;
}

/* The value of a field in METADATA's head; p == NULL: none. */
static struct slice head_field(struct slice text, const char *field)
{
    while (text.n != 0) {
        struct slice line = slice_cut(&text, '\n'), name;
        line.n -= line.n != 0 && line.p[line.n - 1] == '\r';
        if (line.n == 0) {
            break;
        }
        name = slice_cut(&line, ':');
        if (slice_ieq(name, slice_str(field))) {
            return slice_trim(line);
        }
    }
    return SLICE_NONE;
}

static int read_wheel(struct python_inside *in, struct blob *b, struct err *e)
{
    struct buf part = BUF_INIT(WHEEL_PART_BYTES);
    struct wheel w;
    uint64_t first, end;
    int rc = 0;

    wheel_begin(&w, in->project, blob_size_bytes(b));
    while (rc == 0 && wheel_wants(&w, &first, &end)) {
        size_t n = (size_t)(end - first);
        char *room = NULL;
        buf_clear(&part);
        room = buf_room(&part, n + 1);
        rc = room == NULL ? err_set(e, E_TOOBIG, "its directory is too large")
                          : blob_read(b, first, room, n, e);
        rc = rc != 0 ? rc : wheel_feed(&w, first, slice_of(room, n), &in->metadata, e);
    }
    buf_free(&part);
    return rc;
}

/* METADATA is what installers go by: it speaks of this very project and version. */
static int check_wheel(struct python_inside *in, struct blob *b, const struct distribution *d,
                       struct upload_reply *out, struct err *e)
{
    const struct metadata_events ev = {on_requires, NULL};
    struct slice name, version, text;
    struct pyversion v;
    struct err why = {0};
    int rc = read_wheel(in, b, &why);

    if (rc == 0) {
        text = buf_slice(&in->metadata);
        rc = utf8_valid(text) == text.n ? metadata_read(text, &ev, &name, &version, &why)
                                        : err_set(&why, E_INVALID, "its METADATA is not UTF-8");
    }
    if (rc == E_INVALID || rc == E_TOOBIG || rc == E_UNSUPPORTED) {
        upload_refuse(out, 400, "the wheel cannot be read: %s", why.text);
        return 0;
    }
    if (rc != 0) {
        return err_set(e, rc, "%s", why.text);
    }
    if (inside_require(out, slice_eq(pyname_normal(name, in->arena), in->project),
                       "the wheel's METADATA is of another project") &&
        inside_require(out, pyversion_parse(version, &v) && pyversion_cmp(&v, &d->version) == 0,
                       "the wheel's METADATA has another version than its file name")) {
        in->requires = head_field(text, "requires-python");
    }
    return 0;
}

/* A source archive is gzip or zip. What it says of itself is not looked for: installers build it to
 * know. */
static int check_source(struct blob *b, struct slice file, struct upload_reply *out, struct err *e)
{
    uint8_t magic[2] = {0};
    int rc = blob_size_bytes(b) >= 2 ? blob_read(b, 0, magic, 2, e) : 0;
    bool zip = slice_ends(file, SLICE(".zip"));

    (void)inside_require(out, rc != 0 || memcmp(magic, zip ? "PK" : "\x1f\x8b", 2) == 0,
                         "the source archive is not a gzip or zip file, although its name says so");
    return rc;
}

/* Installers leave a file out that says what they cannot read. */
static void check_requires(struct python_inside *in, struct upload_reply *out)
{
    struct pyspecs specs;

    (void)(inside_require(out, in->requires.n <= REQUIRES_BYTES,
                          "its Requires-Python is longer than 4096 bytes") &&
           inside_require(out,
                          in->requires.n == 0 ||
                              pyspecs_parse(in->requires, in->arena, &specs, NULL) == 0,
                          "its Requires-Python is invalid (PEP 440)"));
}

/* d: what the file's name says; said: what the form says it requires, which counts for sources. */
static int python_look_inside(struct python_inside *in, struct blob *b,
                              const struct distribution *d, struct slice file, struct slice said,
                              struct upload_reply *out, struct err *e)
{
    int rc;

    if (d->wheel) {
        rc = check_wheel(in, b, d, out, e);
    } else {
        in->requires = said;
        rc = check_source(b, file, out, e);
    }
    if (rc == 0 && out->status == 0) {
        check_requires(in, out);
    }
    return rc;
}

enum {
    FIELD_BYTES = 4096,      /* of those that are looked at */
    OTHERS_BYTES = 16 << 20, /* of all else, descriptions and attestations among it */
    MD5_BYTES = 16,
    FILE_NAME_MAX = 255,
};

enum field {
    FIELD_ACTION,
    FIELD_PROTOCOL,
    FIELD_NAME,
    FIELD_VERSION,
    FIELD_TYPE,
    FIELD_PYTHON,
    FIELD_MD5,
    FIELD_SHA256,
    FIELD_BLAKE2,
    FIELD_ASC,
    FIELD_CONTENT,
    FIELDS
};
static const char *const field_names[FIELDS] = {
    [FIELD_ACTION] = ":action",
    [FIELD_PROTOCOL] = "protocol_version",
    [FIELD_NAME] = "name",
    [FIELD_VERSION] = "version",
    [FIELD_TYPE] = "filetype",
    [FIELD_PYTHON] = "requires_python",
    [FIELD_MD5] = "md5_digest",
    [FIELD_SHA256] = "sha256_digest",
    [FIELD_BLAKE2] = "blake2_256_digest",
    [FIELD_ASC] = "gpg_signature",
    [FIELD_CONTENT] = "content",
};

struct form {
    const struct repo *r;
    const struct put_sight *sight;
    struct arena arena;
    struct multipart parser;
    struct buf field[FIELDS]; /* values; of content the file's name */
    bool seen[FIELDS];
    enum field now; /* FIELDS: passed over */
    uint64_t others_bytes;
    EVP_MD_CTX *md5; /* NULL: the library has none, as in FIPS mode */
    struct blake2b blake2;
    /* normalized, and the caller may bring its files; p == NULL: not known yet */
    struct slice project;
    struct python_inside inside;
    /* while bytes are read: */
    struct form_upload *to;
    struct upload_reply *out;
};

/* Ends the reading: *out says why. */
static int refuse_python_form(struct err *e)
{
    return err_set(e, E_DENIED, "answered");
}

static struct slice value(const struct form *f, enum field which)
{
    return slice_trim(buf_slice(&f->field[which]));
}

/* --- whose it is ------------------------------------------------------------------------------ */

static int may_bring(struct form *f, struct slice project, struct err *e)
{
    struct slice subject =
        arena_fmt(&f->arena, "%s/simple/" SLICE_FMT "/", f->r->name, SLICE_ARG(project));

    if (f->sight->may(f->sight->arg, subject)) {
        return 0;
    }
    upload_refuse(f->out, 403,
                  "this token has no scope for the project " SLICE_FMT
                  ": it needs publish:" SLICE_FMT "*",
                  SLICE_ARG(project), SLICE_ARG(subject));
    return refuse_python_form(e);
}

static int judge_name(struct form *f, struct err *e)
{
    struct slice name = value(f, FIELD_NAME);

    if (f->project.p != NULL) {
        return 0;
    }
    if (!pyname_valid(name) || pyname_normal(name, &f->arena).n > PYTHON_NAME_MAX) {
        upload_refuse(f->out, 400,
                      "invalid name of a project: it has letters and digits, with '-', '_' or '.' "
                      "between them, and at most %d characters",
                      PYTHON_NAME_MAX);
        return refuse_python_form(e);
    }
    f->project = pyname_normal(name, &f->arena);
    return may_bring(f, f->project, e);
}

/* Checks the right before the file's bytes come, so that a client without it cannot fill the disk:
 * by the name in the form, which the tools send first, else by the file's own name, which must
 * prove to be the same. */
static int judge_file(struct form *f, struct err *e)
{
    struct slice file = value(f, FIELD_CONTENT);
    size_t n = 0;

    if (f->seen[FIELD_NAME]) {
        return judge_name(f, e);
    }
    if (slice_ends(file, SLICE(".whl"))) {
        file = slice_cut(&file, '-');
    } else {
        for (n = file.n; n > 0 && file.p[n - 1] != '-'; n--) {
        }
        file = slice_first(file, n > 0 ? n - 1 : 0);
    }
    if (!pyname_valid(file)) {
        upload_refuse(f->out, 400,
                      "the file name does not begin with a project: <name>-<version>...");
        return refuse_python_form(e);
    }
    return may_bring(f, pyname_normal(file, &f->arena), e);
}

/* --- the form's parts ------------------------------------------------------------------------- */

static int on_form_part(void *arg, const struct multipart_part *p, struct err *e)
{
    struct form *f = arg;

    f->now = FIELDS;
    for (unsigned i = 0; i < FIELDS; i++) {
        if (slice_eqs(p->name, field_names[i])) {
            f->now = (enum field)i;
        }
    }
    if (f->now == FIELDS) {
        return 0;
    }
    if (f->seen[f->now]) {
        upload_refuse(f->out, 400, "the form has \"%s\" more than once", field_names[f->now]);
        return refuse_python_form(e);
    }
    f->seen[f->now] = true;
    if (f->now != FIELD_CONTENT) {
        return 0;
    }
    buf_adds(&f->field[FIELD_CONTENT], p->filename);
    return judge_file(f, e);
}

static int on_content(struct form *f, struct slice bytes, struct err *e)
{
    int rc = form_upload_write(f->to, bytes, f->out, e);

    if (rc == 0 && f->out->status == 0) {
        if (f->md5 != NULL) {
            EVP_DigestUpdate(f->md5, bytes.p, bytes.n);
        }
        blake2b_add(&f->blake2, bytes);
    }
    return rc == 0 && f->out->status != 0 ? refuse_python_form(e) : rc;
}

static int on_form_data(void *arg, struct slice bytes, struct err *e)
{
    struct form *f = arg;

    if (f->now == FIELD_CONTENT) {
        return on_content(f, bytes, e);
    }
    if (f->now == FIELDS) {
        f->others_bytes += bytes.n;
        if (f->others_bytes > OTHERS_BYTES) {
            upload_refuse(f->out, 413,
                          "the fields of the form, without the file, are larger than %d MiB",
                          OTHERS_BYTES >> 20);
            return refuse_python_form(e);
        }
        return 0;
    }
    buf_adds(&f->field[f->now], bytes);
    if (f->field[f->now].rc != 0) {
        upload_refuse(f->out, 413, "the form's \"%s\" is longer than %zu bytes",
                      field_names[f->now], f->field[f->now].max);
        return refuse_python_form(e);
    }
    return 0;
}

static int on_part_end(void *arg, struct err *e)
{
    (void)arg;
    (void)e;
    return 0;
}

static const struct multipart_events parts = {on_form_part, on_form_data, on_part_end};

/* What the parser or an event found becomes the answer; our own trouble stays an rc. */
static int answer_form_error(struct form *f, int rc, const struct err *why, struct err *e)
{
    if (rc != 0 && f->out->status != 0) {
        return 0;
    }
    if (rc == E_PROTOCOL || rc == E_TOOBIG) {
        upload_refuse(f->out, rc == E_TOOBIG ? 413 : 400, "%s", why->text);
        return 0;
    }
    return rc != 0 ? err_set(e, rc, "%s", why->text) : 0;
}

/* --- what it says, and what it is ------------------------------------------------------------- */

static bool require(struct form *f, bool holds, const char *what)
{
    if (!holds && f->out->status == 0) {
        upload_refuse(f->out, 400, "%s", what);
    }
    return holds;
}

static bool name_fits(struct slice file)
{
    for (size_t i = 0; i < file.n; i++) {
        char c = file.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              (c != '\0' && strchr("._-+!", c) != NULL))) {
            return false;
        }
    }
    return file.n != 0 && file.n <= FILE_NAME_MAX && file.p[0] != '.';
}

static bool check_words(struct form *f, struct distribution *d)
{
    struct slice file = value(f, FIELD_CONTENT), type = value(f, FIELD_TYPE);
    struct pyversion v;

    return require(f, slice_eqs(value(f, FIELD_ACTION), "file_upload"),
                   "the form's :action must be file_upload") &&
           require(f, !f->seen[FIELD_PROTOCOL] || slice_eqs(value(f, FIELD_PROTOCOL), "1"),
                   "the form's protocol_version must be 1") &&
           require(f, f->seen[FIELD_CONTENT] && file.n != 0, "the form has no file (content)") &&
           require(f, name_fits(file) && python_is_file(file),
                   "invalid file name: it must end in .whl, .tar.gz or .zip, and have letters, "
                   "digits, '.', '_', '-', '+' and '!' only") &&
           require(f, pyversion_parse(value(f, FIELD_VERSION), &v),
                   "the form's version is invalid (PEP 440)") &&
           require(f, distribution_parse(file, f->project, &f->arena, d),
                   "the file name is not of this project: <name>-<version>...") &&
           require(f, pyversion_cmp(&d->version, &v) == 0,
                   "the file name has another version than the form") &&
           require(f, slice_eqs(type, d->wheel ? "bdist_wheel" : "sdist"),
                   "the form's filetype does not fit the file: it is bdist_wheel for .whl and "
                   "sdist for .tar.gz and .zip; other kinds are not accepted");
}

static bool digest_holds(struct form *f, enum field which, const uint8_t *got, size_t n)
{
    struct slice hex = value(f, which);
    uint8_t said[DIGEST_BYTES];

    return hex.n == 0 || (slice_hex(hex, said, n) && memcmp(said, got, n) == 0);
}

/* Without MD5 here it is passed over, when the form has a better one. */
static bool md5_holds(struct form *f)
{
    uint8_t md5[EVP_MAX_MD_SIZE] = {0};

    if (f->md5 == NULL) {
        return require(f,
                       value(f, FIELD_MD5).n == 0 || value(f, FIELD_SHA256).n != 0 ||
                           value(f, FIELD_BLAKE2).n != 0,
                       "the form's only digest is md5_digest, and MD5 is disabled here (FIPS "
                       "mode); send sha256_digest");
    }
    EVP_DigestFinal_ex(f->md5, md5, NULL);
    return require(f, digest_holds(f, FIELD_MD5, md5, MD5_BYTES),
                   "the bytes do not match md5_digest; send them again");
}

static bool check_digests(struct form *f)
{
    uint8_t blake2[BLAKE2B_256_BYTES];
    const struct digest *d = form_upload_digest(f->to);

    blake2b_final(&f->blake2, blake2);
    return require(f, form_upload_bytes(f->to) != 0, "the file is empty") &&
           require(f, digest_holds(f, FIELD_SHA256, d->b, DIGEST_BYTES),
                   "the bytes do not match sha256_digest; send them again") &&
           require(f, digest_holds(f, FIELD_BLAKE2, blake2, BLAKE2B_256_BYTES),
                   "the bytes do not match blake2_256_digest; send them again") &&
           md5_holds(f);
}

static int check_inside(struct form *f, const struct distribution *d, struct err *e)
{
    struct blob *b = NULL;
    int rc = form_upload_look(f->to, &b, e);

    if (rc == 0) {
        f->inside.project = f->project;
        rc = python_look_inside(&f->inside, b, d, value(f, FIELD_CONTENT), value(f, FIELD_PYTHON),
                                f->out, e);
    }
    blob_release(&b);
    return rc;
}

/* --- publishing ------------------------------------------------------------------------------- */

static struct slice about(struct form *f, uint64_t now_unix_s)
{
    struct buf b = BUF_INIT(8 * FIELD_BYTES);
    time_t t = (time_t)now_unix_s;
    char when[32] = "";
    struct slice text;
    struct tm tm;

    if (gmtime_r(&t, &tm) != NULL) {
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    }
    jwrite_open(&b, NULL, '{');
    if (f->inside.requires.n != 0) {
        jwrite_text(&b, "requires-python", f->inside.requires);
    }
    jwrite_str(&b, "upload-time", when);
    jwrite_close(&b, '}');
    buf_byte(&b, '\n');
    text = arena_copy(&f->arena, buf_slice(&b));
    buf_free(&b);
    return text;
}

static struct slice beside(struct form *f, const char *end)
{
    return arena_fmt(&f->arena, SLICE_FMT "%s", SLICE_ARG(value(f, FIELD_CONTENT)), end);
}

static int publish(struct form *f, uint64_t now_unix_s, struct err *e)
{
    struct form_upload_beside more[3];
    size_t n = 0;

    more[n++] = (struct form_upload_beside){beside(f, ".about"), about(f, now_unix_s)};
    if (f->inside.metadata.n != 0) {
        more[n++] =
            (struct form_upload_beside){beside(f, ".metadata"), buf_slice(&f->inside.metadata)};
    }
    if (f->field[FIELD_ASC].n != 0) {
        more[n++] = (struct form_upload_beside){beside(f, ".asc"), buf_slice(&f->field[FIELD_ASC])};
    }
    return form_upload_publish(f->to,
                               arena_fmt(&f->arena, "simple/" SLICE_FMT, SLICE_ARG(f->project)),
                               value(f, FIELD_CONTENT), more, n, now_unix_s, f->out, e);
}

/* --- the reader ------------------------------------------------------------------------------- */

static EVP_MD_CTX *md5_open(void)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();

    CHECK(md != NULL);
    if (EVP_DigestInit_ex(md, EVP_md5(), NULL) != 1) {
        ERR_clear_error(); /* else the thread's next TLS connection takes it for its own */
        EVP_MD_CTX_free(md);
        return NULL;
    }
    return md;
}

static void *form_open(const struct repo *r, const struct plan *p, const struct put_sight *sight)
{
    struct form *f = NEW(struct form);

    f->r = r;
    f->sight = sight;
    f->now = FIELDS;
    python_inside_init(&f->inside, &f->arena);
    for (unsigned i = 0; i < FIELDS; i++) {
        f->field[i] = BUF_INIT(i == FIELD_ASC ? PYTHON_ASC_MAX : FIELD_BYTES);
    }
    f->md5 = md5_open();
    blake2b_init(&f->blake2, BLAKE2B_256_BYTES);
    multipart_begin(&f->parser, p->text, &parts, f);
    return f;
}

static void form_close(void *state)
{
    struct form *f = state;

    if (f != NULL) {
        for (unsigned i = 0; i < FIELDS; i++) {
            buf_free(&f->field[i]);
        }
        python_inside_fini(&f->inside);
        EVP_MD_CTX_free(f->md5);
        multipart_fini(&f->parser);
        arena_fini(&f->arena);
        free(f);
    }
}

static int form_read(void *state, struct slice bytes, struct form_upload *to,
                     struct upload_reply *out, struct err *e)
{
    struct form *f = state;
    struct err why = {0};

    f->to = to;
    f->out = out;
    return answer_form_error(f, multipart_feed(&f->parser, bytes, &why), &why, e);
}

static int form_finish(void *state, uint64_t now_unix_s, struct form_upload *to,
                       struct upload_reply *out, struct err *e)
{
    struct form *f = state;
    struct distribution d;
    struct err why = {0};
    int rc;

    f->to = to;
    f->out = out;
    rc = multipart_end(&f->parser, &why);
    rc = rc != 0 ? rc : judge_name(f, &why);
    if (rc == 0 && check_words(f, &d) && check_digests(f)) {
        rc = check_inside(f, &d, &why);
    }
    if (rc == 0 && out->status == 0) {
        rc = publish(f, now_unix_s, &why);
    }
    return answer_form_error(f, rc, &why, e);
}

const struct form_reader python_form_reader = {
    .open = form_open, .read = form_read, .finish = form_finish, .close = form_close};
