/* tls.c - tls init: a key and a certificate for this machine's names, where the daemon can read
 * them, and the listen section that uses them.
 *
 * The certificate is self-signed and no authority (CA:FALSE): clients that trust it by its file
 * trust nothing else with it. With --csr the key's request for an authority is written instead. A
 * pair that is there and good is kept, so that a second run prints the same section. All of
 * standard output is valid configuration. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/os/newfile.h"
#include "common/os/user.h"
#include "server/ctl/ctl.h"

enum { NAMES_MAX = 256, NAME_BYTES = 254, DAYS = 825 /* more is refused by Apple's clients */ };

struct tls_names {
    char at[NAMES_MAX][NAME_BYTES];
    size_t count;
};

struct tls_options {
    const struct words *names; /* to stand in the certificate, beside the machine's own */
    bool csr;                  /* a request for an authority in place of a certificate */
    bool force;                /* files that are there are replaced */
};

struct tls_files {
    char folder[PATH_MAX]; /* absolute once it is there */
    char *certificate, *request, *key;
    bool has_reader;   /* beside root: the daemon's user */
    bool readable;     /* and that user gets to the key */
    bool kept;         /* the pair was there and is good: nothing was written */
    const char *fault; /* why a pair that is there was not kept, or NULL */
    char fault_text[NAME_BYTES + 64];
    struct user reader;
};

static int ctl_tls_error(struct err *e, const char *what)
{
    char why[120];

    ERR_error_string_n(ERR_peek_last_error(), why, sizeof why);
    ERR_clear_error();
    return err_set(e, E_INTERNAL, "OpenSSL could not create %s: %s", what, why);
}

/* --- names --- */

static bool is_ip_name(const char *name)
{
    uint8_t bytes[16];

    return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

/* A host's name, also with a "*." before it. */
static bool is_host(struct slice name)
{
    bool dot = true; /* before the first letter */

    if (slice_starts(name, SLICE("*."))) {
        name = slice_from(name, 2);
    }
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '-' || c == '_';
        if (!letter && (c != '.' || dot)) {
            return false;
        }
        dot = c == '.';
    }
    return name.n > 0 && name.n < NAME_BYTES && !dot;
}

static void add_certificate_name(struct tls_names *n, const char *name)
{
    for (size_t i = 0; i < n->count; i++) {
        if (strcasecmp(n->at[i], name) == 0) {
            return;
        }
    }
    if (n->count < NAMES_MAX && (is_ip_name(name) || is_host(slice_str(name)))) {
        snprintf(n->at[n->count++], NAME_BYTES, "%s", name);
    }
}

static void add_hostnames(struct tls_names *n)
{
    struct addrinfo hints = {.ai_flags = AI_CANONNAME, .ai_socktype = SOCK_STREAM}, *found = NULL;
    char host[NAME_BYTES] = "";

    if (gethostname(host, sizeof host - 1) != 0) {
        return;
    }
    add_certificate_name(n, host);
    if (getaddrinfo(host, NULL, &hints, &found) == 0) {
        if (found->ai_canonname != NULL) {
            add_certificate_name(n, found->ai_canonname);
        }
        freeaddrinfo(found);
    }
}

/* Addresses that other machines may use: not those of a link, which need its name, too. */
static void add_addresses(struct tls_names *n)
{
    struct ifaddrs *all = NULL;
    char text[INET6_ADDRSTRLEN];

    if (getifaddrs(&all) != 0) {
        return;
    }
    for (const struct ifaddrs *a = all; a != NULL; a = a->ifa_next) {
        const void *address = NULL;
        if (a->ifa_addr == NULL || (a->ifa_flags & IFF_UP) == 0) {
            continue;
        }
        if (a->ifa_addr->sa_family == AF_INET) {
            address = &((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr;
        } else if (a->ifa_addr->sa_family == AF_INET6) {
            address = &((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr;
            address = IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)address) ? NULL : address;
        }
        if (address != NULL &&
            inet_ntop(a->ifa_addr->sa_family, address, text, sizeof text) != NULL) {
            add_certificate_name(n, text);
        }
    }
    freeifaddrs(all);
}

/* Those that were given come first: the first of all is the subject. */
static int collect_names(const struct tls_options *o, struct tls_names *n, struct err *e)
{
    for (size_t i = 0; i < o->names->count; i++) {
        const char *name = o->names->at[i];
        if (!is_ip_name(name) && !is_host(slice_str(name))) {
            return err_set(e, E_USAGE,
                           "--name \"%.80s\" is neither a host name nor an address; write one "
                           "such as mirror.example or 10.0.0.5",
                           name);
        }
        add_certificate_name(n, name);
    }
    add_hostnames(n);
    add_certificate_name(n, "localhost");
    add_addresses(n);
    add_certificate_name(n, "127.0.0.1");
    add_certificate_name(n, "::1");
    return 0;
}

static GENERAL_NAMES *general_names(const struct tls_names *n)
{
    GENERAL_NAMES *all = GENERAL_NAMES_new();

    CHECK(all != NULL);
    for (size_t i = 0; i < n->count; i++) {
        GENERAL_NAME *one = GENERAL_NAME_new();
        CHECK(one != NULL);
        if (is_ip_name(n->at[i])) {
            GENERAL_NAME_set0_value(one, GEN_IPADD, a2i_IPADDRESS(n->at[i]));
        } else {
            ASN1_IA5STRING *text = ASN1_IA5STRING_new();
            CHECK(text != NULL && ASN1_STRING_set(text, n->at[i], -1) == 1);
            GENERAL_NAME_set0_value(one, GEN_DNS, text);
        }
        CHECK(sk_GENERAL_NAME_push(all, one) > 0);
    }
    return all;
}

/* --- what is signed --- */

/* The common name has at most 64 bytes; clients go by the alternative names. */
static bool set_subject(X509_NAME *subject, const struct tls_names *n)
{
    const char *name = strlen(n->at[0]) <= 64 ? n->at[0] : "mirrord";

    return X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1,
                                      -1, 0) == 1;
}

static bool set_serial(X509 *x)
{
    unsigned char bytes[16];
    BIGNUM *n = NULL;
    bool ok = RAND_bytes(bytes, sizeof bytes) == 1;

    bytes[0] &= 0x7f; /* a serial is positive */
    n = ok ? BN_bin2bn(bytes, sizeof bytes, NULL) : NULL;
    ok = n != NULL && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x)) != NULL;
    BN_free(n);
    return ok;
}

static X509_EXTENSION *extension(X509 *x, int nid, const char *value)
{
    X509V3_CTX ctx;

    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, x, x, NULL, NULL, 0);
    return X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
}

static bool add_extension(X509 *x, int nid, const char *value)
{
    X509_EXTENSION *ext = extension(x, nid, value);
    bool ok = ext != NULL && X509_add_ext(x, ext, -1) == 1;

    X509_EXTENSION_free(ext);
    return ok;
}

static int make_certificate(EVP_PKEY *key, const struct tls_names *n, BIO *out, int64_t *expires,
                            struct err *e)
{
    GENERAL_NAMES *names = general_names(n);
    X509 *x = X509_new();
    time_t now = time(NULL), end = now + (time_t)DAYS * 24 * 3600;
    /* It begins an hour ago: clocks of clients differ. */
    bool ok = x != NULL && X509_set_version(x, X509_VERSION_3) == 1 && set_serial(x) &&
              set_subject(X509_get_subject_name(x), n) &&
              X509_set_issuer_name(x, X509_get_subject_name(x)) == 1 &&
              X509_time_adj_ex(X509_getm_notBefore(x), 0, -3600, &now) != NULL &&
              X509_time_adj_ex(X509_getm_notAfter(x), 0, 0, &end) != NULL &&
              X509_set_pubkey(x, key) == 1 &&
              add_extension(x, NID_basic_constraints, "critical,CA:FALSE") &&
              add_extension(x, NID_ext_key_usage, "serverAuth") &&
              add_extension(x, NID_subject_key_identifier, "hash") &&
              X509_add1_ext_i2d(x, NID_subject_alt_name, names, 0, X509V3_ADD_DEFAULT) == 1 &&
              X509_sign(x, key, EVP_sha256()) != 0 && PEM_write_bio_X509(out, x) == 1;
    int rc = ok ? 0 : ctl_tls_error(e, "the certificate");

    *expires = end;
    X509_free(x);
    GENERAL_NAMES_free(names);
    return rc;
}

static int make_request(EVP_PKEY *key, const struct tls_names *n, BIO *out, struct err *e)
{
    GENERAL_NAMES *names = general_names(n);
    STACK_OF(X509_EXTENSION) *exts = NULL;
    X509_REQ *r = X509_REQ_new();
    bool ok = r != NULL && X509_REQ_set_version(r, X509_REQ_VERSION_1) == 1 &&
              set_subject(X509_REQ_get_subject_name(r), n) && X509_REQ_set_pubkey(r, key) == 1 &&
              X509V3_add1_i2d(&exts, NID_subject_alt_name, names, 0, X509V3_ADD_DEFAULT) == 1 &&
              X509_REQ_add_extensions(r, exts) == 1 && X509_REQ_sign(r, key, EVP_sha256()) != 0 &&
              PEM_write_bio_X509_REQ(out, r) == 1;
    int rc = ok ? 0 : ctl_tls_error(e, "the request");

    sk_X509_EXTENSION_pop_free(exts, X509_EXTENSION_free);
    X509_REQ_free(r);
    GENERAL_NAMES_free(names);
    return rc;
}

/* --- files --- */

static char *path_in(const char *folder, const char *name)
{
    char *path = NULL;

    CHECK(asprintf(&path, "%s/%s", folder, name) >= 0);
    return path;
}

/* Who may read the key: the user that the daemon of this configuration runs as. */
static void find_reader(const struct ctl *c, struct tls_files *f)
{
    bool installed = strncmp(c->config, DEFAULT_FOLDER, sizeof DEFAULT_FOLDER - 1) == 0;
    char *state = NULL;

    if (geteuid() != 0) {
        return;
    }
    (void)!config_places(c->config, NULL, &state,
                         NULL); /* there is none yet, or it is wrong: NULL */
    f->has_reader = user_of_service(state, installed ? "mirrord" : NULL, &f->reader);
    free(state);
}

/* "tls" beside the configuration, or the folder that was named; made when it is not there. Held in
 * *dir, locked: who makes files in it at the same time waits, and finds them. */
static int open_tls_folder(const struct ctl *c, struct tls_files *f, int *dir, struct err *e)
{
    const char *slash = strrchr(c->config, '/');
    char *path = c->args > 0 ? mem_strdup(c->arg[0]) : slash == NULL ? mem_strdup("tls") : NULL;
    bool made;
    int rc = 0;

    if (path == NULL) {
        CHECK(asprintf(&path, "%.*s/tls", (int)(slash - c->config), c->config) >= 0);
    }
    made = mkdir(path, 0750) == 0;
    if (!made && errno != EEXIST) {
        rc = err_sys(e, "%s cannot be created", path);
    } else if (realpath(path, f->folder) == NULL ||
               (*dir = open(f->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) == -1 ||
               flock(*dir, LOCK_EX) == -1 ||
               (made && fchmod(*dir, 0750) == -1) || /* a umask may have closed it to the group */
               (made && f->has_reader && fchown(*dir, (uid_t)-1, f->reader.gid) == -1)) {
        rc = err_sys(e, "%s", path);
    }
    free(path);
    if (rc == 0) {
        f->certificate = path_in(f->folder, "cert.pem");
        f->request = path_in(f->folder, "cert.csr");
        f->key = path_in(f->folder, "key.pem");
    }
    return rc;
}

/* --- a pair that is there --- */

static int no_passphrase(char *out, int size, int writing, void *arg)
{
    (void)out, (void)size, (void)writing, (void)arg;
    return -1;
}

static X509 *read_certificate(const char *path)
{
    BIO *in = BIO_new_file(path, "r");
    X509 *x = in != NULL ? PEM_read_bio_X509(in, NULL, no_passphrase, NULL) : NULL;

    BIO_free(in);
    return x;
}

static EVP_PKEY *read_key(const char *path)
{
    BIO *in = BIO_new_file(path, "r");
    EVP_PKEY *key = in != NULL ? PEM_read_bio_PrivateKey(in, NULL, no_passphrase, NULL) : NULL;

    BIO_free(in);
    return key;
}

/* The alternative names of a certificate. */
static void names_of(const X509 *x, struct tls_names *n)
{
    GENERAL_NAMES *all = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
    char text[INET6_ADDRSTRLEN];

    n->count = 0;
    for (int i = 0; all != NULL && i < sk_GENERAL_NAME_num(all); i++) {
        const GENERAL_NAME *one = sk_GENERAL_NAME_value(all, i);
        int len =
            one->type == GEN_DNS || one->type == GEN_IPADD ? ASN1_STRING_length(one->d.ia5) : 0;
        const unsigned char *data = len > 0 ? ASN1_STRING_get0_data(one->d.ia5) : NULL;

        if (one->type == GEN_DNS && len > 0 && len < NAME_BYTES) {
            char name[NAME_BYTES];
            snprintf(name, sizeof name, "%.*s", len, (const char *)data);
            add_certificate_name(n, name);
        } else if ((len == 4 || len == 16) &&
                   inet_ntop(len == 4 ? AF_INET : AF_INET6, data, text, sizeof text) != NULL) {
            add_certificate_name(n, text);
        }
    }
    GENERAL_NAMES_free(all);
}

static bool is_for(X509 *x, const char *name)
{
    return is_ip_name(name) ? X509_check_ip_asc(x, name, 0) == 1
                            : X509_check_host(x, name, 0, 0, NULL) == 1;
}

/* Why a pair cannot be kept; NULL: it can. */
static const char *fault_of(const struct tls_options *o, X509 *x, EVP_PKEY *key, char *room,
                            size_t bytes)
{
    if (x == NULL || key == NULL) {
        return "it and its certificate cannot be read";
    }
    if (X509_check_private_key(x, key) != 1) {
        return "it is not the key of the certificate beside it";
    }
    if (X509_cmp_current_time(X509_get0_notAfter(x)) <= 0) {
        return "its certificate has expired";
    }
    for (size_t i = 0; i < o->names->count; i++) {
        if (!is_for(x, o->names->at[i])) {
            snprintf(room, bytes, "its certificate is not for %s", o->names->at[i]);
            return room;
        }
    }
    return NULL;
}

/* Whether the pair that is there can be kept; f->fault says why not. Then *n and *expires become
 * the certificate's. */
static bool keep_pair(const struct tls_options *o, struct tls_files *f, struct tls_names *n,
                      int64_t *expires)
{
    X509 *x = read_certificate(f->certificate);
    EVP_PKEY *key = read_key(f->key);
    struct tm end;

    f->fault = fault_of(o, x, key, f->fault_text, sizeof f->fault_text);
    if (f->fault == NULL) {
        names_of(x, n);
        f->fault = n->count == 0 ? "its certificate has no alternative names" : NULL;
    }
    if (f->fault == NULL && ASN1_TIME_to_tm(X509_get0_notAfter(x), &end) == 1) {
        *expires = timegm(&end);
    }
    ERR_clear_error();
    EVP_PKEY_free(key);
    X509_free(x);
    return f->fault == NULL;
}

/* A link is there, too, wherever it leads. */
static int check_absent(const struct tls_options *o, const char *path, const char *fault,
                        struct err *e)
{
    struct stat st;

    if (lstat(path, &st) == -1) {
        return 0;
    }
    if (S_ISDIR(st.st_mode)) {
        return err_set(e, E_EXISTS, "%s is a folder; move it away or name another folder", path);
    }
    if (!o->force) {
        return err_set(e, E_EXISTS,
                       "%s exists: %s; move it away, name another folder or give --force", path,
                       fault != NULL ? fault : "a daemon may use it");
    }
    return 0;
}

/* On the disk, but not under its name yet. */
static int stage(const char *path, mode_t mode, const struct tls_files *readers, BIO *text,
                 struct newfile **out, struct err *e)
{
    char *p;
    long n = BIO_get_mem_data(text, &p);
    int rc = newfile_open(path, mode, out, e);

    if (rc == 0 && readers != NULL &&
        fchown(newfile_fd(*out), (uid_t)-1, readers->reader.gid) == -1) {
        rc = err_sys(e, "%s cannot be given to the group %s", path, readers->reader.group);
    }
    if (rc == 0) {
        newfile_write(*out, p, (size_t)n);
        rc = newfile_check(*out, e);
    }
    if (rc == 0 && fsync(newfile_fd(*out)) == -1) {
        rc = err_sys(e, "%s: fsync", path);
    }
    return rc;
}

/* Both are written before one has its name: a key without its certificate would end the daemon's
 * next start. */
static int write_tls_files(const struct tls_options *o, const struct tls_files *f, EVP_PKEY *key,
                           BIO *signed_, struct err *e)
{
    BIO *text = BIO_new(BIO_s_secmem());
    struct newfile *first = NULL, *second = NULL;
    const char *beside = o->csr ? f->request : f->certificate;
    int rc = check_absent(o, f->key, f->fault, e);

    rc = rc != 0 ? rc : check_absent(o, beside, NULL, e);
    if (rc == 0 && PEM_write_bio_PrivateKey(text, key, NULL, NULL, 0, NULL, NULL) != 1) {
        rc = ctl_tls_error(e, "the key's file");
    }
    rc = rc != 0 ? rc
                 : stage(f->key, f->has_reader ? 0640 : 0600, f->has_reader ? f : NULL, text,
                         &first, e);
    rc = rc != 0 ? rc : stage(beside, 0644, NULL, signed_, &second, e);
    rc = rc != 0 ? rc : newfile_commit(&first, e);
    rc = rc != 0 ? rc : newfile_commit(&second, e);
    newfile_abort(&first);
    newfile_abort(&second);
    BIO_free(text);
    return rc;
}

/* Asked of a child that becomes that user: folders above, or one that was there, may be closed to
 * it. */
static bool reader_can_read(const struct ctl *c, const struct tls_files *f)
{
    char why[USER_WHY];
    int status = 0;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        bool closed = user_become(&f->reader, NULL) == 0 && access(f->key, R_OK) == -1;
        if (closed && !c->quiet) {
            user_why_unreadable(f->key, errno, why);
            dprintf(STDERR_FILENO, "mirrorctl: warning: %s: %s\n", f->key, why);
        }
        _exit(closed);
    }
    return pid == -1 || waitpid(pid, &status, 0) != pid || status == 0;
}

/* --- what is said --- */

static void quoted(struct buf *out, const char *key, const char *path)
{
    buf_addf(out, "    %s = \"", key);
    for (const char *p = path; *p != '\0'; p++) {
        if (strchr("\"\\$", *p) != NULL) {
            buf_byte(out, '\\');
        }
        buf_byte(out, (uint8_t)*p);
    }
    buf_str(out, "\"\n");
}

static void tell_people(const struct ctl *c, const struct tls_options *o, const struct tls_files *f,
                        const struct tls_names *n, int64_t expires, const char *section)
{
    char day[32];
    struct tm tm;
    time_t end = (time_t)expires;

    say(c, "# %s %s, ", f->kept ? "Kept" : "Made", o->csr ? f->request : f->certificate);
    if (o->csr) {
        say(c, "a certificate signing request,");
    } else {
        strftime(day, sizeof day, "%Y-%m-%d", gmtime_r(&end, &tm));
        say(c, "%svalid until %s,", f->kept ? "" : "self-signed, ", day);
    }
    say(c, " for these names:\n#");
    for (size_t i = 0; i < n->count; i++) {
        say(c, "%s %s", i > 0 ? "," : "", n->at[i]);
    }
    say(c, "\n# %s %s", f->kept ? "Kept" : "Made", f->key);
    if (f->has_reader && f->readable) {
        say(c, ", which root and the group %s can read.\n", f->reader.group);
    } else if (f->has_reader) {
        say(c, ", which the group %s cannot read yet.\n", f->reader.group);
    } else if (f->kept) {
        say(c, ".\n");
    } else {
        say(c, ", which only %s can read.\n", geteuid() == 0 ? "root" : "you");
    }
    if (o->csr) {
        say(c,
            "# Have an authority sign the request, write the certificate and the intermediate "
            "certificates to\n"
            "# %s, then:\n",
            f->certificate);
    }
    say(c,
        "# Put this section into a new file in conf.d, or append it to %s. Then run\n"
        "# `mirrorctl config test` and `systemctl reload mirrord`.\n",
        c->config);
    say(c, "%s", section);
    if (!o->csr) {
        say(c, "# To trust it, clients need its file: curl --cacert %s https://%s%s%s:8443/\n",
            f->certificate, strchr(n->at[0], ':') != NULL ? "[" : "", n->at[0],
            strchr(n->at[0], ':') != NULL ? "]" : "");
    }
}

static void tell_programs(const struct tls_options *o, const struct tls_files *f,
                          const struct tls_names *n, int64_t expires, const char *section)
{
    json_t *names = json_array();
    json_t *all;

    for (size_t i = 0; i < n->count; i++) {
        json_array_append_new(names, json_string(n->at[i]));
    }
    all = json_pack("{s:s, s:s, s:o, s:s}", "key", f->key, "certificate", f->certificate, "names",
                    names, "listen", section);
    if (o->csr) {
        json_object_set_new(all, "request", json_string(f->request));
    } else {
        json_object_set_new(all, "expires_unix_s", json_integer(expires));
        json_object_set_new(all, "kept", json_boolean(f->kept));
    }
    print_json(all);
    json_decref(all);
}

int ctl_tls_init(struct ctl *c, struct err *e)
{
    const struct tls_options o = {.names = option_words(c, "--name"),
                                  .csr = option_given(c, "--csr"),
                                  .force = option_given(c, "--force")};
    struct tls_names *n = NEW(struct tls_names);
    struct tls_files f = {.folder = ""};
    struct buf section = BUF_INIT(64 << 10);
    EVP_PKEY *key = EVP_EC_gen("P-256");
    BIO *text = BIO_new(BIO_s_mem());
    int64_t expires = 0;
    int dir = -1;
    int rc = key != NULL && text != NULL ? 0 : ctl_tls_error(e, "the key");

    rc = rc != 0 ? rc : collect_names(&o, n, e);
    if (rc == 0) {
        rc = o.csr ? make_request(key, n, text, e) : make_certificate(key, n, text, &expires, e);
    }
    if (rc == 0) {
        find_reader(c, &f);
        rc = open_tls_folder(c, &f, &dir, e);
    }
    if (rc == 0) {
        f.kept = !o.force && !o.csr && keep_pair(&o, &f, n, &expires);
        rc = f.kept ? 0 : write_tls_files(&o, &f, key, text, e);
    }
    if (rc == 0 && f.has_reader) {
        f.readable = reader_can_read(c, &f);
    }
    if (rc == 0) {
        buf_str(&section, "listen \"0.0.0.0:8443\" {\n");
        quoted(&section, "tls_certificate", f.certificate);
        quoted(&section, "tls_key", f.key);
        buf_str(&section, "}\n");
        if (c->json) {
            tell_programs(&o, &f, n, expires, buf_cstr(&section));
        } else {
            tell_people(c, &o, &f, n, expires, buf_cstr(&section));
        }
    }
    if (rc == 0 && f.kept && !c->quiet) {
        fprintf(stderr,
                "mirrorctl: %s and %s are kept: they exist and match; --force makes new ones\n",
                f.key, f.certificate);
    }
    if (dir != -1) {
        close(dir);
    }
    free(f.certificate);
    free(f.request);
    free(f.key);
    buf_free(&section);
    BIO_free(text);
    EVP_PKEY_free(key);
    free(n);
    return rc;
}
