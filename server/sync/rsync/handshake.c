#include "server/sync/rsync/handshake.h"

#include <openssl/evp.h>
#include <stdio.h>

#include "common/codec/base64.h"

enum { MODULE_MAX = 255 };
static const char *const digest_names[] = {"sha512", "sha256", "sha1", "md5"};

bool handshake_parse(struct slice line, unsigned *version, struct slice *digests)
{
    struct slice rest = line;
    struct slice number;
    uint64_t major;
    uint64_t minor;

    if (!slice_starts(line, SLICE("@RSYNCD: "))) {
        return false;
    }
    rest = slice_from(line, strlen("@RSYNCD: "));
    number = slice_cut(&rest, ' ');
    if (!slice_u64(slice_cut(&number, '.'), &major) || major > 255) {
        return false;
    }
    if (number.p != NULL && number.n != 0 && !slice_u64(number, &minor)) {
        return false;
    }
    *version = (unsigned)major;
    *digests = slice_trim(rest);
    return true;
}

static const char *choose_checksum(struct slice theirs)
{
    for (size_t i = 0; i < ARRAY_LEN(digest_names); i++) {
        struct slice rest = theirs;
        while (rest.n > 0) {
            if (slice_eqs(slice_cut(&rest, ' '), digest_names[i])) {
                return digest_names[i];
            }
        }
    }
    return theirs.n == 0 ? "md5" : NULL;
}

bool handshake_answer(struct slice digests, struct slice password, struct slice challenge,
                      struct buf *out)
{
    const char *name = choose_checksum(digests);
    const EVP_MD *md = name != NULL ? EVP_get_digestbyname(name) : NULL;
    EVP_MD_CTX *x;
    uint8_t sum[EVP_MAX_MD_SIZE];
    char text[BASE64_ROOM(EVP_MAX_MD_SIZE)];
    unsigned n;
    size_t len;

    if (md == NULL) {
        return false;
    }
    x = EVP_MD_CTX_new();
    CHECK(x != NULL && EVP_DigestInit_ex(x, md, NULL) == 1 &&
          EVP_DigestUpdate(x, password.p, password.n) == 1 &&
          EVP_DigestUpdate(x, challenge.p, challenge.n) == 1 &&
          EVP_DigestFinal_ex(x, sum, &n) == 1);
    EVP_MD_CTX_free(x);
    base64_encode(sum, n, text);
    len = strlen(text);
    while (len > 0 && text[len - 1] == '=') {
        len--;
    }
    buf_add(out, text, len);
    return true;
}

void handshake_init(struct handshake *g, unsigned offer, struct slice module, struct slice user,
                    struct slice password)
{
    *g = (struct handshake){.module = module, .user = user, .password = password, .offer = offer};
    g->digests = BUF_INIT(HANDSHAKE_LINE_MAX);
    g->line = BUF_INIT(HANDSHAKE_LINE_MAX);
    g->motd = BUF_INIT(HANDSHAKE_MOTD_MAX);
    g->out = BUF_INIT(2 * HANDSHAKE_LINE_MAX);
    buf_addf(&g->out, "@RSYNCD: %u.0 sha512 sha256 md5\n", offer);
}

void handshake_fini(struct handshake *g)
{
    buf_free(&g->digests);
    buf_free(&g->line);
    buf_free(&g->motd);
    buf_free(&g->out);
}

static int on_versions(struct handshake *g, struct slice line, struct err *e)
{
    struct slice digests;
    unsigned theirs;

    if (!handshake_parse(line, &theirs, &digests)) {
        return err_set(e, E_PROTOCOL, "the peer does not speak rsync: '" SLICE_FMT "'",
                       SLICE_ARG(slice_first(line, line.n < 80 ? line.n : 80)));
    }
    if (theirs < HANDSHAKE_VERSION_LEAST) {
        return err_set(
            e, E_UNSUPPORTED,
            "the peer speaks version %u of rsync's protocol, but %d (rsync 3.0) or later is needed",
            theirs, HANDSHAKE_VERSION_LEAST);
    }
    g->version = theirs < g->offer ? theirs : g->offer;
    g->versions = true;
    buf_adds(&g->digests, digests);
    buf_adds(&g->out, g->module);
    buf_byte(&g->out, '\n');
    return 0;
}

static int on_challenge(struct handshake *g, struct slice challenge, struct err *e)
{
    if (g->password.p == NULL || g->user.n == 0) {
        return err_set(e, E_DENIED,
                       "the module needs a user and a password; put user:password into the file "
                       "of authorization");
    }
    buf_adds(&g->out, g->user);
    buf_byte(&g->out, ' ');
    if (!handshake_answer(buf_slice(&g->digests), g->password, challenge, &g->out)) {
        return err_set(e, E_UNSUPPORTED,
                       "the peer supports only " SLICE_FMT
                       " for passwords, which is not supported here",
                       SLICE_ARG(buf_slice(&g->digests)));
    }
    buf_byte(&g->out, '\n');
    return 0;
}

static int on_refusal(struct slice text, struct err *e)
{
    static const struct {
        const char *word;
        int code;
    } known[] = {{"max connections", E_BUSY}, {"Unknown module", E_NOTFOUND},
                 {"auth failed", E_DENIED},   {"access denied", E_DENIED},
                 {"refused", E_REFUSED},      {"chroot", E_UNSUPPORTED},
                 {"service is busy", E_BUSY}};
    char line[160];
    int code = E_REFUSED;

    text = slice_trim(text);
    snprintf(line, sizeof line, SLICE_FMT, SLICE_ARG(text));
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (strstr(line, known[i].word) != NULL) {
            code = known[i].code;
            break;
        }
    }
    return err_set(e, code, "the peer says: %s", line);
}

static int on_handshake_line(struct handshake *g, struct slice line, struct err *e)
{
    if (slice_starts(line, SLICE("@ERROR"))) {
        struct slice text = slice_from(line, strlen("@ERROR"));
        return on_refusal(slice_starts(text, SLICE(":")) ? slice_from(text, 1) : text, e);
    }
    if (!g->versions) {
        return on_versions(g, line, e);
    }
    if (slice_eq(line, SLICE("@RSYNCD: OK"))) {
        g->done = true;
        return 0;
    }
    if (slice_starts(line, SLICE("@RSYNCD: AUTHREQD "))) {
        return on_challenge(g, slice_from(line, strlen("@RSYNCD: AUTHREQD ")), e);
    }
    if (slice_starts(line, SLICE("@RSYNCD:"))) {
        return err_set(e, E_PROTOCOL, "the peer ended the handshake: '" SLICE_FMT "'",
                       SLICE_ARG(slice_first(line, line.n < 80 ? line.n : 80)));
    }
    buf_adds(&g->motd, line);
    buf_byte(&g->motd, '\n');
    if (g->motd.rc != 0) {
        return err_set(e, E_TOOBIG, "the peer's message of the day is too long");
    }
    return 0;
}

int handshake_feed(struct handshake *g, struct slice *in, struct err *e)
{
    CHECK(g->module.n <= MODULE_MAX);
    while (in->n > 0 && !g->done) {
        ptrdiff_t end = slice_find(*in, '\n');
        size_t n = end >= 0 ? (size_t)end : in->n;
        int rc;

        buf_add(&g->line, in->p, n);
        *in = slice_from(*in, end >= 0 ? n + 1 : n);
        if (g->line.rc != 0) {
            return err_set(e, E_TOOBIG, "the peer sent a line that is too long");
        }
        if (end < 0) {
            return 0;
        }
        if (g->line.n > 0 && g->line.p[g->line.n - 1] == '\r') {
            g->line.n--;
        }
        rc = on_handshake_line(g, buf_slice(&g->line), e);
        if (rc != 0) {
            return rc;
        }
        buf_clear(&g->line);
    }
    return 0;
}
