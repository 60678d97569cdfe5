/* What the page tells people to copy: for each kind of repo what its clients take, with the address
 * as they see it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/admin/client_lines.h"

static struct buf out = BUF_INIT(64 << 10);

static const char *lines_at(const struct repo_conf *conf, const struct client_doors *doors)
{
    struct repo *r = NULL;
    struct err e;

    if (repo_open(conf, &r, &e) != 0) {
        fail_msg("%s", e.text);
    }
    buf_clear(&out);
    client_lines(&out, r, doors);
    repo_close(&r);
    return buf_cstr(&out);
}

static const char *lines_of(const struct repo_conf *conf, const char *base, const char *rsync)
{
    return lines_at(conf, &(struct client_doors){.base = slice_str(base), .rsync = rsync});
}

#define MIRROR      "http://mirror:8080"
#define HAS(text)   assert_non_null(strstr(buf_cstr(&out), text))
#define LACKS(text) assert_null(strstr(buf_cstr(&out), text))

static const struct repo_conf hf = {.name = "hf",
                                    .protocol = "hf",
                                    .origin.url = "https://hub.example",
                                    .anonymous_read = true,
                                    .source = "a:1"};

static void each_kind(void **state)
{
    struct repo_conf c = hf;

    (void)state;
    lines_of(&c, MIRROR, NULL);
    HAS("<pre>export HF_ENDPOINT=http://mirror:8080/hf</pre>");
    HAS("trainagent pull hf/OWNER/NAME@main --to FOLDER");
    c.name = "hub"; /* agents know a Hub by its usual name alone */
    lines_of(&c, MIRROR, NULL);
    HAS("http://mirror:8080/hub</pre>");
    LACKS("trainagent");
    c = hf;
    c.name = "forge";
    c.protocol = "conda";
    lines_of(&c, MIRROR, NULL);
    HAS("conda install --override-channels -c http://mirror:8080/forge PACKAGE");
    HAS("pixi project channel add http://mirror:8080/forge");
    HAS("trainagent pull forge/PATH");
    c.name = "images";
    c.protocol = "oci";
    lines_of(&c, MIRROR, NULL);
    HAS("<pre>podman pull --tls-verify=false mirror:8080/images/NAME:TAG</pre>");
    HAS("<pre>docker pull mirror:8080/images/NAME:TAG</pre>");
    LACKS("trainagent");
    c = (struct repo_conf){
        .name = "own", .protocol = "hosted", .anonymous_read = true, .source = "a:1"};
    lines_of(&c, MIRROR, "0.0.0.0:873");
    HAS("hf upload OWNER/NAME FOLDER .");
    HAS("curl -H \"Authorization: Bearer $TOKEN\" -T FILE http://mirror:8080/own/OWNER/NAME/FILE");
    HAS("twine upload --repository-url http://mirror:8080/own/legacy/ dist/*");
    HAS("pip install --index-url http://mirror:8080/own/simple/ --trusted-host mirror PACKAGE");
    HAS("<pre>rsync -a rsync://mirror/own/ FOLDER</pre>");
    lines_of(&c, "http://[2001:db8::1]:8080", "[::]:1873");
    HAS("rsync://[2001:db8::1]:1873/own/");
    c.anonymous_read = false;
    lines_of(&c, MIRROR, "0.0.0.0:873");
    LACKS("rsync");
}

/* A token does not cross plain HTTP. */
static void uploads_use_tls(void **state)
{
    struct repo_conf c = {
        .name = "own", .protocol = "hosted", .anonymous_read = true, .source = "a:1"};
    static const char *const bases[] = {MIRROR, "https://mirror:8443"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bases); i++) {
        lines_at(&c, &(struct client_doors){.base = slice_str(bases[i]), .tls = "0.0.0.0:8443"});
        HAS("<pre>SSL_CERT_FILE=cert.pem HF_TOKEN=$TOKEN "
            "HF_ENDPOINT=https://mirror:8443/own hf upload");
        HAS("<pre>CURL_CA_BUNDLE=cert.pem curl -H \"Authorization: Bearer $TOKEN\" -T FILE "
            "https://mirror:8443/own/OWNER/NAME/FILE</pre>");
        HAS("<pre>TWINE_CERT=cert.pem twine upload "
            "--repository-url https://mirror:8443/own/legacy/");
        HAS("<pre>docker push mirror:8443/own/OWNER/IMAGE:TAG</pre>");
    }
    lines_at(&c,
             &(struct client_doors){.base = SLICE(MIRROR), .tls = "0.0.0.0:8443", .public = true});
    HAS("<pre>HF_TOKEN=$TOKEN HF_ENDPOINT=https://mirror:8443/own hf upload");
    LACKS("cert.pem");
    lines_at(&c, &(struct client_doors){.base = SLICE(MIRROR), .tls = "[::]:8443"});
    HAS("<pre>HF_ENDPOINT=http://mirror:8080/own hf download OWNER/NAME</pre>");
    lines_of(&c, MIRROR, NULL);
    LACKS("https://");
    LACKS("cert.pem");
}

static void python(void **state)
{
    struct repo_conf c = hf;

    (void)state;
    c.name = c.protocol = "pypi";
    c.origin.url = "https://pypi.example/";
    lines_of(&c, MIRROR, NULL);
    HAS("pip install --index-url http://mirror:8080/pypi/simple/ --trusted-host mirror PACKAGE");
    HAS("UV_DEFAULT_INDEX=http://mirror:8080/pypi/simple/");
    LACKS("trainagent");
    lines_of(&c, "https://mirror:8443", NULL);
    LACKS("--trusted-host");
    c.origin.url = "https://pypi.example/whl/"; /* an index itself */
    lines_of(&c, MIRROR, NULL);
    HAS("http://mirror:8080/pypi/ --trusted-host");
}

/* A line for apt where there are packages for apt. */
static void what_a_generic_one_holds(void **state)
{
    static const struct {
        const char *pattern, *has;
    } one[] = {{"\\.deb$", "<pre>deb http://mirror:8080/data SUITE main</pre>"},
               {"^dists/", "<pre>deb "},
               {"/(current_)?repodata",
                "<pre>conda install --override-channels -c http://mirror:8080/data PACKAGE</pre>"},
               {"repomd.xml$", "<pre>baseurl=http://mirror:8080/data/</pre>"},
               {".", NULL},
               {"\\.tar$", NULL}};
    struct repo_conf c = hf;

    (void)state;
    c.name = "data";
    c.protocol = "generic";
    for (size_t i = 0; i < ARRAY_LEN(one); i++) {
        struct rule_conf rule = {.pattern = one[i].pattern,
                                 .class = "immutable",
                                 .ttl_s = -1,
                                 .neg_ttl_s = -1,
                                 .stale_while_s = -1,
                                 .swr_s = -1,
                                 .sie_s = -1,
                                 .floor_s = -1};
        c.rules = &rule;
        c.rules_count = 1;
        lines_of(&c, MIRROR, NULL);
        HAS("wget -c http://mirror:8080/data/PATH");
        if (one[i].has != NULL) {
            HAS(one[i].has);
        } else {
            LACKS("deb ");
            LACKS("conda");
            LACKS("baseurl");
        }
    }
}

static void what_a_synced_one_holds(void **state)
{
    struct sync_conf sync = {.list = "debian"};
    struct repo_conf c = hf;

    (void)state;
    c.name = "data";
    c.protocol = "generic";
    c.sync = &sync;
    lines_of(&c, MIRROR, "0.0.0.0:873");
    HAS("<pre>deb http://mirror:8080/data SUITE main</pre>");
    HAS("rsync://mirror/data/");
    sync = (struct sync_conf){.list = "index", .profile = "rpm"};
    lines_of(&c, MIRROR, NULL);
    HAS("baseurl=");
    sync.profile = "none";
    lines_of(&c, MIRROR, NULL);
    LACKS("baseurl=");
}

/* Of an upstream by rsync or ssh people see where it is, and not by whose name we come. */
static void a_home_has_no_user(void **state)
{
    struct sync_conf sync = {.list = "index"};
    struct repo_conf c = hf;
    struct repo *r = NULL;
    static const char *const urls[][2] = {
        {"rsync://archive.example/linux/", "rsync://archive.example/linux/"},
        {"ssh://me@archive.example/a@b/", "ssh://archive.example/a@b/"},
        {"https://archive.example/a", "https://archive.example/a/"}};

    (void)state;
    c.protocol = "generic";
    c.sync = &sync;
    for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
        c.origin.url = urls[i][0];
        assert_int_equal(repo_open(&c, &r, NULL), 0);
        assert_string_equal(r->shown_origin, urls[i][1]);
        repo_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind),
        cmocka_unit_test(uploads_use_tls),
        cmocka_unit_test(python),
        cmocka_unit_test(what_a_generic_one_holds),
        cmocka_unit_test(what_a_synced_one_holds),
        cmocka_unit_test(a_home_has_no_user),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);

    buf_free(&out);
    return rc;
}
