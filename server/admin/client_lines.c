#include "server/admin/client_lines.h"

#include "common/codec/url.h"
#include "server/page/html.h"
#include "server/fetch/origin.h"
#include "server/http/msg.h"

enum { BASE_BYTES = 4096 };

struct lines { /* those of one repo */
    struct buf *out;
    const struct repo *r;
    struct slice base;  /* "http://mirror:8080" */
    struct slice safe;  /* for what goes with a token: "https://mirror:8443", or the same */
    bool own_authority; /* at `safe`: clients have to be given its file */
    unsigned clients;   /* so far */
};

/* A client of the repo: a radio button, of which one is chosen at a time, and after it the client's
 * commands; page.css shows those of the chosen one. Without a style sheet each client's name stands
 * above its commands. */
static void client_begin(struct lines *l, const char *client)
{
    unsigned n = l->clients++;

    buf_addf(l->out,
             "<input type=\"radio\" name=\"use-%s\" id=\"use-%s-%u\"%s>"
             "<label for=\"use-%s-%u\">%s</label>",
             l->r->name, l->r->name, n, n == 0 ? " checked" : "", l->r->name, n, client);
    buf_str(l->out, "<pre>");
}

static void client_end(struct lines *l)
{
    buf_str(l->out, "</pre>\n");
}

/* before base/repo/after */
static void line_at(struct lines *l, const char *client, const char *before, struct slice base,
                    const char *after)
{
    client_begin(l, client);
    buf_str(l->out, before);
    html_text(l->out, base);
    buf_addf(l->out, "/%s%s", l->r->name, after);
    client_end(l);
}

static void line(struct lines *l, const char *client, const char *before, const char *after)
{
    line_at(l, client, before, l->base, after);
}

/* "mirror" of "http://mirror:8080". */
static struct slice host_of_base_url(struct slice base)
{
    return http_host_name(slice_from(base, slice_starts(base, SLICE("https://")) ? 8 : 7));
}

/* Where links of a pypi repo's index begin: an origin that is an index itself, or a site with
 * simple/ below it. */
static const char *index_below(const struct repo *r)
{
    struct url u;

    return r->synced ||
                   (url_split(slice_str(r->shown_origin), &u, NULL) == 0 && slice_eqs(u.path, "/"))
               ? "/simple/"
               : "/";
}

static void pip_line(struct lines *l, const char *below)
{
    client_begin(l, "pip");
    buf_str(l->out, "pip install --index-url ");
    html_text(l->out, l->base);
    buf_addf(l->out, "/%s%s", l->r->name, below);
    if (slice_starts(l->base, SLICE("http://"))) { /* else pip passes over the index */
        buf_str(l->out, " --trusted-host ");
        html_text(l->out, host_of_base_url(l->base));
    }
    buf_str(l->out, " PACKAGE");
    client_end(l);
}

static void pypi_lines(struct lines *l)
{
    const char *below = index_below(l->r);

    pip_line(l, below);
    line(l, "uv", "export UV_DEFAULT_INDEX=", below);
}

/* Is there a rule for such paths, which others of the repo do not have? Then it holds what has such
 * paths. */
static bool has_rule_for(const struct repo *r, const char *path, const char *other)
{
    const struct rule *rule = rules_match(r->rules, slice_str(path));

    return !rule->built_in && rule != rules_match(r->rules, slice_str(other));
}

static const char *guess_repo_kind(const struct repo *r)
{
    return r->holds != NULL ? r->holds
           : has_rule_for(r, "dists/a/InRelease", "other/a/file") ||
                   has_rule_for(r, "pool/main/a/a/a_1_all.deb", "other/a/file")
               ? "debian"
           : has_rule_for(r, "noarch/repodata.json", "noarch/a/file") ? "conda"
           : has_rule_for(r, "repodata/repomd.xml", "other/a/file")   ? "rpm"
                                                                      : "files";
}

static void generic_lines(struct lines *l)
{
    const char *what = guess_repo_kind(l->r);

    if (strcmp(what, "debian") == 0) {
        line(l, "apt", "deb ", " SUITE main");
    } else if (strcmp(what, "conda") == 0) {
        line(l, "conda", "conda install --override-channels -c ", " PACKAGE");
    } else if (strcmp(what, "rpm") == 0) {
        line(l, "dnf", "baseurl=", "/");
    }
    line(l, "wget", "wget -c ", "/PATH");
}

static void conda_lines(struct lines *l)
{
    line(l, "conda", "conda install --override-channels -c ", " PACKAGE");
    line(l, "pixi", "pixi project channel add ", "");
}

static bool is_tls(struct slice base)
{
    return slice_starts(base, SLICE("https://"));
}

/* Names of images have no scheme. */
static struct slice without_scheme(struct slice base)
{
    return slice_from(base, is_tls(base) ? 8 : 7);
}

static void oci_lines(struct lines *l)
{
    line_at(l, "podman", is_tls(l->base) ? "podman pull " : "podman pull --tls-verify=false ",
            without_scheme(l->base), "/NAME:TAG");
    line_at(l, "docker", "docker pull ", without_scheme(l->base), "/NAME:TAG");
}

/* authorities: the variable that names the file of them, where the certificate is not of a public
 * one. */
static void upload_line(struct lines *l, const char *client, const char *authorities,
                        const char *before, const char *after)
{
    client_begin(l, client);
    if (l->own_authority) {
        buf_addf(l->out, "%s=cert.pem ", authorities);
    }
    buf_str(l->out, before);
    html_text(l->out, l->safe);
    buf_addf(l->out, "/%s%s", l->r->name, after);
    client_end(l);
}

static void hosted_lines(struct lines *l)
{
    line(l, "hf download", "HF_ENDPOINT=", " hf download OWNER/NAME");
    upload_line(l, "hf upload", "SSL_CERT_FILE",
                "HF_TOKEN=$TOKEN HF_ENDPOINT=", " hf upload OWNER/NAME FOLDER .");
    upload_line(l, "curl", "CURL_CA_BUNDLE", "curl -H \"Authorization: Bearer $TOKEN\" -T FILE ",
                "/OWNER/NAME/FILE");
    pip_line(l, "/simple/");
    upload_line(l, "twine", "TWINE_CERT", "twine upload --repository-url ", "/legacy/ dist/*");
    line_at(l, "docker", "docker push ", without_scheme(l->safe), "/OWNER/IMAGE:TAG");
}

static void rsync_line(struct lines *l, const char *address)
{
    const char *port = strrchr(address, ':');

    client_begin(l, "rsync");
    buf_str(l->out, "rsync -a rsync://");
    html_text(l->out, host_of_base_url(l->base));
    buf_addf(l->out, "%s/%s/ FOLDER", port != NULL && strcmp(port, ":873") != 0 ? port : "",
             l->r->name);
    client_end(l);
}

static void agent_line(struct lines *l, const char *path)
{
    client_begin(l, "trainagent");
    buf_str(l->out, "TRAINAGENT_MIRROR=");
    html_text(l->out, l->base);
    buf_addf(l->out, " trainagent pull %s/%s --to FOLDER", l->r->name, path);
    client_end(l);
}

/* Writes the lines that the protocol's own clients take. Returns what trainagent pulls; NULL:
 * nothing. */
static const char *protocol_lines(struct lines *l)
{
    const char *protocol = l->r->ops->name;

    if (strcmp(protocol, "hf") == 0) {
        line(l, "hf", "export HF_ENDPOINT=", "");
        return strcmp(l->r->name, "hf") == 0 ? "OWNER/NAME@main" : NULL; /* the name agents know */
    }
    if (strcmp(protocol, "pypi") == 0) {
        pypi_lines(l);
        return NULL;
    }
    if (strcmp(protocol, "conda") == 0) {
        conda_lines(l);
        return "PATH";
    }
    if (strcmp(protocol, "oci") == 0) {
        oci_lines(l);
        return NULL;
    }
    if (strcmp(protocol, "hosted") == 0) {
        hosted_lines(l);
        return "OWNER/NAME/";
    }
    generic_lines(l);
    return "PATH";
}

void client_lines(struct buf *out, const struct repo *r, const struct client_doors *doors)
{
    struct lines l = {.out = out,
                      .r = r,
                      .base = doors->base,
                      .safe = doors->base,
                      .own_authority = doors->tls != NULL && !doors->public};
    struct buf safe = BUF_INIT(BASE_BYTES);
    const char *port = doors->tls != NULL ? strrchr(doors->tls, ':') : NULL, *agent;

    if (port != NULL && !is_tls(l.base)) {
        buf_addf(&safe, "https://" SLICE_FMT "%s", SLICE_ARG(host_of_base_url(l.base)), port);
        l.safe = buf_slice(&safe);
    }

    buf_addf(out, "<details name=\"use\"><summary>%s <span>%s</span></summary>\n", r->name,
             strcmp(r->name, r->ops->name) != 0 ? r->ops->name : "");
    buf_str(out, "<div class=\"clients\">\n");
    agent = protocol_lines(&l);
    if (doors->rsync != NULL && r->anonymous_read && (r->synced || r->shown_origin == NULL)) {
        rsync_line(&l, doors->rsync);
    }
    if (agent != NULL) {
        agent_line(&l, agent);
    }
    buf_str(out, "</div>\n</details>\n");
    buf_free(&safe);
}
