#include "server/admin/client_lines.h"

#include "common/codec/url.h"
#include "server/page/html.h"
#include "server/fetch/origin.h"
#include "server/http/msg.h"

/* <pre>before base/repo/after</pre> */
static void line(struct buf *out, const char *before, struct slice base, const char *repo,
                 const char *after)
{
    buf_addf(out, "<pre>%s", before);
    html_text(out, base);
    buf_addf(out, "/%s%s</pre>\n", repo, after);
}

/* "mirror" of "http://mirror:8080". */
static struct slice host_of(struct slice base)
{
    return http_host_name(slice_from(base, slice_starts(base, SLICE("https://")) ? 8 : 7));
}

/* Where links of a pypi repo's index begin: an origin that is an index itself, or a site with simple/ below it. */
static const char *index_below(const struct repo *r)
{
    struct url u;

    return r->synced || (url_split(slice_str(r->home), &u, NULL) == 0 && slice_eqs(u.path, "/"))
               ? "/simple/"
               : "/";
}

static void pip_line(struct buf *out, const struct repo *r, struct slice base, const char *below)
{
    buf_str(out, "<pre>pip install --index-url ");
    html_text(out, base);
    buf_addf(out, "/%s%s", r->name, below);
    if (slice_starts(base, SLICE("http://"))) { /* else pip passes over the index */
        buf_str(out, " --trusted-host ");
        html_text(out, host_of(base));
    }
    buf_str(out, " PACKAGE</pre>\n");
}

static void pypi_lines(struct buf *out, const struct repo *r, struct slice base)
{
    const char *below = index_below(r);

    pip_line(out, r, base, below);
    line(out, "export UV_DEFAULT_INDEX=", base, r->name, below);
}

/* Is there a rule for such paths, which others of the repo do not have? Then it holds what has such paths. */
static bool has_rule_for(const struct repo *r, const char *path, const char *other)
{
    const struct rule *rule = rules_match(r->rules, slice_str(path));

    return !rule->built_in && rule != rules_match(r->rules, slice_str(other));
}

static const char *holds(const struct repo *r)
{
    return r->holds != NULL ? r->holds
           : has_rule_for(r, "dists/a/InRelease", "other/a/file") ||
                   has_rule_for(r, "pool/main/a/a/a_1_all.deb", "other/a/file")
               ? "debian"
           : has_rule_for(r, "noarch/repodata.json", "noarch/a/file") ? "conda"
           : has_rule_for(r, "repodata/repomd.xml", "other/a/file")   ? "rpm"
                                                                      : "files";
}

static void generic_lines(struct buf *out, const struct repo *r, struct slice base)
{
    const char *what = holds(r);

    if (strcmp(what, "debian") == 0) {
        line(out, "deb ", base, r->name, " SUITE main");
    } else if (strcmp(what, "conda") == 0) {
        line(out, "conda install --override-channels -c ", base, r->name, " PACKAGE");
    } else if (strcmp(what, "rpm") == 0) {
        line(out, "baseurl=", base, r->name, "/");
    }
    line(out, "wget -c ", base, r->name, "/PATH");
}

static void conda_lines(struct buf *out, const struct repo *r, struct slice base)
{
    line(out, "conda install --override-channels -c ", base, r->name, " PACKAGE");
    line(out, "pixi project channel add ", base, r->name, "");
}

/* Names of images have no scheme; whoever serves plain HTTP must be told so. */
static void oci_lines(struct buf *out, const struct repo *r, struct slice base)
{
    bool tls = slice_starts(base, SLICE("https://"));
    struct slice host = slice_from(base, tls ? 8 : 7);

    line(out, tls ? "podman pull " : "podman pull --tls-verify=false ", host, r->name, "/NAME:TAG");
    line(out, "docker pull ", host, r->name, "/NAME:TAG");
}

static void hosted_lines(struct buf *out, const struct repo *r, struct slice base)
{
    line(out, "HF_TOKEN=$TOKEN HF_ENDPOINT=", base, r->name, " hf upload OWNER/NAME FOLDER .");
    line(out, "HF_ENDPOINT=", base, r->name, " hf download OWNER/NAME");
    line(out, "curl -H \"Authorization: Bearer $TOKEN\" -T FILE ", base, r->name,
         "/OWNER/NAME/FILE");
    line(out, "twine upload --repository-url ", base, r->name, "/legacy/ dist/*");
    pip_line(out, r, base, "/simple/");
    line(out, "docker push ", slice_from(base, slice_starts(base, SLICE("https://")) ? 8 : 7),
         r->name, "/OWNER/IMAGE:TAG");
}

static void rsync_line(struct buf *out, const struct repo *r, struct slice base,
                       const char *address)
{
    const char *port = strrchr(address, ':');

    buf_str(out, "<pre>rsync -a rsync://");
    html_text(out, host_of(base));
    buf_addf(out, "%s/%s/ FOLDER</pre>\n", port != NULL && strcmp(port, ":873") != 0 ? port : "",
             r->name);
}

void client_lines(struct buf *out, const struct repo *r, struct slice base, const char *rsync)
{
    const char *agent = NULL;

    buf_addf(out, "<h3>%s</h3>\n", r->name);
    if (strcmp(r->ops->name, "hf") == 0) {
        line(out, "export HF_ENDPOINT=", base, r->name, "");
        agent =
            strcmp(r->name, "hf") == 0 ? "OWNER/NAME@main" : NULL; /* the name that agents know */
    } else if (strcmp(r->ops->name, "pypi") == 0) {
        pypi_lines(out, r, base);
    } else if (strcmp(r->ops->name, "conda") == 0) {
        conda_lines(out, r, base);
        agent = "PATH";
    } else if (strcmp(r->ops->name, "oci") == 0) {
        oci_lines(out, r, base);
    } else if (strcmp(r->ops->name, "hosted") == 0) {
        hosted_lines(out, r, base);
        agent = "OWNER/NAME/";
    } else {
        generic_lines(out, r, base);
        agent = "PATH";
    }
    if (rsync != NULL && r->anonymous_read && (r->synced || r->home == NULL)) {
        rsync_line(out, r, base, rsync);
    }
    if (agent != NULL) {
        buf_str(out, "<pre>TRAINAGENT_MIRROR=");
        html_text(out, base);
        buf_addf(out, " trainagent pull %s/%s --to FOLDER</pre>\n", r->name, agent);
    }
}
