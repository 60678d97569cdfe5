#include <stdio.h>

#include "common/base/buf.h"
#include "common/codec/units.h"
#include "server/ctl/ctl.h"

int ctl_token_create(struct ctl *c, struct err *e)
{
    const struct words *names = option_words(c, "--name"), *scope = option_words(c, "--scope");
    const char *expires = option_text(c, "--expires");
    json_t *req, *scopes, *ok = NULL;
    uint64_t life_ms = 0;
    int rc;

    if (names->count > 1) {
        return err_set(e, E_USAGE,
                       "--name is given %zu times, but a token has one name; give "
                       "it once",
                       names->count);
    }
    if (names->count == 0 || scope->count == 0) {
        return err_set(e, E_USAGE,
                       "a token needs a name and a scope, which say whose it is and what it may "
                       "do; write --name ci --scope publish:models/*");
    }
    if (expires != NULL && (!span_parse(slice_str(expires), &life_ms) || life_ms < 1000)) {
        return err_set(e, E_USAGE,
                       "--expires \"%s\" is no time, it counts from now, write 30d or 12h",
                       expires);
    }
    req = request("token.create");
    scopes = json_array();
    for (size_t i = 0; i < scope->count; i++) {
        json_array_append_new(scopes, json_string(scope->at[i]));
    }
    json_object_set_new(req, "name", json_string(names->at[0]));
    json_object_set_new(req, "scopes", scopes);
    json_object_set_new(req, "expires_s", json_integer((json_int_t)(life_ms / 1000)));
    rc = act(c, req, &ok, e);
    if (rc == 0 && !c->quiet && get_str(ok, "warnings")[0] != '\0') {
        fprintf(stderr, "mirrorctl: warning: %s\n", get_str(ok, "warnings"));
    }
    if (rc == 0 && !c->json) {
        printf("%s\n", get_str(ok, "token")); /* alone on stdout, for > token-file */
        if (c->tty && !c->quiet) {
            fprintf(stderr, "Copy the token now: it is not stored and not shown again.\n");
        }
    }
    json_decref(ok);
    return rc;
}

static void token_row(struct table *t, const json_t *row)
{
    struct buf scopes = BUF_INIT(1 << 20);
    const json_t *scope;
    size_t i;

    json_array_foreach(json_object_get(row, "scopes"), i, scope)
    {
        buf_addf(&scopes, "%s%s", i > 0 ? " " : "", json_string_value(scope));
    }
    table_text(t, row, "name");
    table_text(t, row, "id");
    table_add(t, buf_cstr(&scopes));
    buf_free(&scopes);
    table_ago(t, get_u64(row, "created_unix_s"));
    table_ago(t, get_u64(row, "expires_unix_s"));
    table_ago(t, get_u64(row, "last_used_unix_s"));
}

int ctl_token_ls(struct ctl *c, struct err *e)
{
    return list(c, request("token.ls"), "NAME,ID,SCOPES,>CREATED,>EXPIRES,>LAST USED", token_row,
                NULL, e);
}

int ctl_token_revoke(struct ctl *c, struct err *e)
{
    json_t *req = request("token.revoke"), *ok = NULL;
    int rc;

    json_object_set_new(req, "name", json_string(c->arg[0]));
    rc = act(c, req, &ok, e);
    if (rc == 0) {
        say(c, "revoked %s\n", c->arg[0]);
    }
    json_decref(ok);
    return rc;
}
