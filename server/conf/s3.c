#include "server/conf/s3.h"

bool s3_origin_is(const char *url)
{
    return url != NULL && strncmp(url, "s3://", 5) == 0;
}

/* Built once, so that the error names the line. */
int s3_origin_try(const struct settings_node *nd, const struct repo_conf *r, const char *key,
                  const char *url, struct err *e)
{
    struct origin_settings set = r->origin;
    struct origin *o = NULL;
    struct err why = {0};
    int rc;

    set.url = url;
    rc = origin_new(r->name, &set, &o, &why);
    origin_free(&o);
    return rc == 0
               ? 0
               : settings_wrong(settings_where(nd, key), e, "repo \"%s\": %s", r->name, why.text);
}

int s3_origin_check(const struct settings_node *nd, const struct repo_conf *r, struct err *e)
{
    static const char *const keys[] = {"endpoint", "region", "addressing"};

    for (size_t i = 0; i < ARRAY_LEN(keys) && !s3_origin_is(r->origin.url); i++) {
        if (settings_written(nd, keys[i])) {
            return settings_wrong(settings_where(nd, keys[i]), e,
                                  "repo \"%s\" has %s and no origin by s3, which alone it is for, "
                                  "write origin = \"s3://bucket/\" or remove it",
                                  r->name, keys[i]);
        }
    }
    if (!s3_origin_is(r->origin.url)) {
        return 0;
    }
    if (strcmp(r->protocol, "generic") != 0) {
        return settings_wrong(settings_where(nd, "origin"), e,
                              "repo \"%s\" has an origin by s3, protocol %s does not speak it, "
                              "write protocol = generic",
                              r->name, r->protocol);
    }
    return s3_origin_try(nd, r, "origin", r->origin.url, e);
}
