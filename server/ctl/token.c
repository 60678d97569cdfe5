#include <stdio.h>

#include "common/codec/units.h"
#include "server/ctl/ctl.h"

int ctl_token_create(struct ctl *c, struct err *e)
{
    json_t *req, *scopes, *ok = NULL;
    uint64_t life_ms = 0;
    int rc;

    if (c->name == NULL || c->scopes == 0) {
        return err_set(e, E_USAGE,
                       "a token needs a name and a scope, they say whose it is and what it may, "
                       "write --name ci --scope publish:models/*");
    }
    if (c->expires != NULL && (!span_parse(slice_str(c->expires), &life_ms) || life_ms < 1000)) {
        return err_set(e, E_USAGE,
                       "--expires \"%s\" is no time, it counts from now, write 30d or 12h",
                       c->expires);
    }
    req = request("token.create");
    scopes = json_array();
    for (size_t i = 0; i < c->scopes; i++) {
        json_array_append_new(scopes, json_string(c->scope[i]));
    }
    json_object_set_new(req, "name", json_string(c->name));
    json_object_set_new(req, "scopes", scopes);
    json_object_set_new(req, "expires_s", json_integer((json_int_t)(life_ms / 1000)));
    rc = ask(c, req, NULL, NULL, NULL, &ok, e);
    if (rc == 0 && c->json) {
        print_json(ok);
    } else if (rc == 0) {
        printf("%s\n", get_str(ok, "token")); /* alone on stdout, for > token-file */
        if (c->tty && !c->quiet) {
            fprintf(stderr, "Keep it now: it is not stored and not shown again.\n");
        }
    }
    json_decref(ok);
    return rc;
}

int ctl_token_ls(struct ctl *c, struct err *e)
{
    json_t *rows = NULL, *ok = NULL, *r, *scope;
    struct table t;
    size_t i, k;
    int rc = ask_rows(c, request("token.ls"), &rows, &ok, e);

    if (rc != 0) {
        return rc;
    }
    if (c->json) {
        print_json(rows);
    } else {
        table_init(&t, c, "NAME,ID,SCOPES,>CREATED,>EXPIRES,>LAST USED");
        json_array_foreach(rows, i, r)
        {
            char text[400] = "";
            json_array_foreach(json_object_get(r, "scopes"), k, scope)
            {
                size_t n = strlen(text);
                snprintf(text + n, sizeof(text) - n, "%s%s", n > 0 ? " " : "",
                         json_string_value(scope));
            }
            table_add(&t, get_str(r, "name"));
            table_add(&t, get_str(r, "id"));
            table_add(&t, text);
            table_ago(&t, get_u64(r, "created_unix_s"));
            table_ago(&t, get_u64(r, "expires_unix_s"));
            table_ago(&t, get_u64(r, "last_used_unix_s"));
        }
        table_print(&t);
    }
    json_decref(rows);
    json_decref(ok);
    return 0;
}

int ctl_token_revoke(struct ctl *c, struct err *e)
{
    json_t *req = request("token.revoke"), *ok = NULL;
    int rc;

    json_object_set_new(req, "name", json_string(c->arg[0]));
    rc = ask(c, req, NULL, NULL, NULL, &ok, e);
    if (rc == 0 && c->json) {
        print_json(ok);
    } else if (rc == 0) {
        say(c, "revoked %s\n", c->arg[0]);
    }
    json_decref(ok);
    return rc;
}
