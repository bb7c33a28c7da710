// Who may do what, by which rules: keys, policy, limits. Changing them is the terminal's business;
// here is the command.

import { useRead } from "../data";
import { inProject, signInPath } from "../dialogs";
import { whole, words, ZONE } from "../format";
import { place } from "../router";
import { mayAct, projects, theme, who } from "../state";
import { Ago, Failed, Mark, Skeleton, Typed } from "../ui";

export function SettingsScreen() {
  const settings = useRead("get_policy", {});
  const told = settings.data.value;
  return (
    <div class="grid" style={{ gridTemplateColumns: "repeat(auto-fit, minmax(320px, 1fr))" }}>
      <h1 class="hidden">Settings of {place.value.project}</h1>
      <You />
      <section class="card" aria-labelledby="policy">
        <header>
          <h2 id="policy">Policy</h2>
          <small>of {place.value.project}</small>
        </header>
        {settings.error.value && <Failed problem={settings.error.value} retry={settings.reload} />}
        {!told && !settings.error.value && <Skeleton lines={10} />}
        {told && <Table values={told.policy} none="none" plain />}
        <div class="body">
          <Typed words={inProject(["genlock", "policy", "set", "NAME=VALUE"])} />
        </div>
      </section>
      <section class="card" aria-labelledby="limits">
        <header>
          <h2 id="limits">Limits</h2>
          <small>
            of tenant {place.value.tenant}
            {told && `, profile ${told.profile}`}
          </small>
        </header>
        {!told && !settings.error.value && <Skeleton lines={10} />}
        {told && <Table values={told.limits} />}
      </section>
      <section class="card" aria-labelledby="tracks">
        <header>
          <h2 id="tracks">Tracks</h2>
        </header>
        {told && <Table values={told.tracks} plain />}
      </section>
      <Keys />
    </div>
  );
}

/** What has no value, `none` says; plain names are as a command takes them. */
function Table({
  values,
  none = "unlimited",
  plain,
}: {
  values: Record<string, unknown>;
  none?: string;
  plain?: boolean;
}) {
  const shown = (value: unknown) =>
    value === null
      ? none
      : typeof value === "object"
        ? JSON.stringify(value)
        : String(value);
  return (
    <dl class="kv">
      {Object.entries(values).map(([name, value]) => [
        <dt key={name} title={name}>
          {plain ? name : words(name)}
        </dt>,
        <dd key={`${name}=`}>{shown(value)}</dd>,
      ])}
    </dl>
  );
}

function You() {
  const told = who.value;
  return (
    <section class="card" aria-labelledby="you">
      <header>
        <h2 id="you">You</h2>
      </header>
      <dl class="kv">
        <dt>Name</dt>
        <dd>{told?.name || "whoever started this service"}</dd>
        <dt>May</dt>
        <dd>{mayAct.value ? "look and act" : "look"}</dd>
        <dt>Sees</dt>
        <dd>
          {told?.tenant === "*" ? "all tenants" : told?.tenant} /{" "}
          {told?.projects === "*" ? "all projects" : told?.projects}
        </dd>
        <dt>Looks</dt>
        <dd>
          <select
            class="field"
            aria-label="colours"
            value={theme.value}
            onChange={(event) => (theme.value = event.currentTarget.value)}
          >
            <option value="system">as the system</option>
            <option value="light">light</option>
            <option value="dark">dark</option>
          </select>
        </dd>
        <dt>Times</dt>
        <dd>{ZONE}</dd>
        <dt>Service</dt>
        <dd>
          {projects.value && `${projects.value.version}, on a ${projects.value.store} store`} ·{" "}
          <a class="link" href="/status">
            status page
          </a>{" "}
          ·{" "}
          <a class="link" href="/docs">
            API
          </a>
        </dd>
      </dl>
      <div class="body row">
        {!mayAct.value && (
          <a class="btn go" href={signInPath()}>
            Sign in to act
          </a>
        )}
        <form method="post" action="/sign-out">
          <button class="btn">Sign out</button>
        </form>
      </div>
    </section>
  );
}

function Keys() {
  const admin = who.value?.role === "admin";
  const keys = useRead("list_keys", {}, { when: admin });
  const problem = keys.error.value;
  return (
    <section class="card" aria-labelledby="keys" style={{ gridColumn: "1 / -1" }}>
      <header>
        <h2 id="keys">Keys</h2>
        <small>of tenant {place.value.tenant}</small>
      </header>
      {!admin ? (
        <div class="none-box">
          <b>Keys are listed for admins, and no browser acts as one</b>
          <span>
            An admin lists, makes, rotates and revokes them where the store is, or with a key of the
            role admin.
          </span>
          <Typed words={["genlock", "keys", "list"]} />
          <Typed words={["genlock", "keys", "create", "NAME", "--role", "agent"]} />
        </div>
      ) : problem ? (
        <Failed problem={problem} retry={keys.reload} />
      ) : keys.data.value ? (
        <ul>
          {keys.data.value.map((key) => (
            <li class="event" key={key.key_id}>
              <Mark look={key.state === "ACTIVE" ? "done" : "stuck"} />
              <p>
                <b>{key.name}</b> <code class="faint">{key.key_id}</code> · {key.role} ·{" "}
                {key.projects === "*" ? "all projects" : key.projects} · {words(key.state)}
                {key.expires_at && ` · ends ${whole(key.expires_at)}`}
              </p>
              <Ago at={key.created_at} />
            </li>
          ))}
        </ul>
      ) : (
        <Skeleton />
      )}
    </section>
  );
}
