/** Apps that servers build from repositories and run. */

import { PandaStackError } from "./errors.js";
import { at, type Transport } from "./transport.js";
import { listIn, snakeCase, view, type Given, type Shown } from "./view.js";

interface AppSettings {
  /** Branch to deploy; `main` when absent. */
  git_branch: string;
  /** Found out when absent. */
  framework: string;
  install_command: string;
  build_command: string;
  start_command: string;
  root_directory: string;
  /** Port it listens on; 3000 when absent. */
  port: number;
  env: Record<string, string>;
  template: string;
  cpu: number;
  memory_mb: number;
  auto_deploy: boolean;
  auto_hibernate: boolean;
  idle_timeout_seconds: number;
}

/** An app. */
export type AppInfo = Shown<
  { id: string; workspace: string; name: string; git_url: string; status: string; created_at: string; updated_at: string } & Pick<
    AppSettings,
    "git_branch" | "port" | "env" | "template" | "cpu" | "memory_mb"
  > &
    Partial<Omit<AppSettings, "git_branch" | "port" | "env" | "template" | "cpu" | "memory_mb">> & {
      sandbox_id?: string;
      active_deployment_id?: string;
      /** Stays the same from deployment to deployment. */
      url?: string;
      is_preview?: boolean;
      pr_number?: number;
      pr_state?: string;
      head_sha?: string;
      repo_full_name?: string;
      preview_url?: string;
    }
>;

export type AppCreateOptions = Given<AppSettings & { git_url: string }> & { name: string };
export type AppUpdateOptions = Given<AppSettings>;

/** A deployment of an app. */
export type DeploymentInfo = Shown<{
  id: string;
  app_id: string;
  workspace: string;
  /** `queued`, `building`, `deploying`, `live`, `failed`, `superseded` or `rolled_back`. */
  status: string;
  git_commit?: string;
  git_ref?: string;
  sandbox_id?: string;
  build_logs?: string;
  error?: string;
  created_at: string;
  updated_at: string;
  finished_at?: string;
}>;

export type EnvScope = "all" | "production" | "preview";

/** A variable of an app. Values of secrets are masked. */
export type EnvVar = Shown<{
  key: string;
  value?: string;
  secret: boolean;
  scope: EnvScope;
  updated_at?: string;
  created_by?: string;
}>;

/** A DNS record that a domain needs. */
export interface AppDomainRecord {
  readonly type: string;
  readonly name: string;
  readonly value: string;
  readonly purpose: string;
  readonly note?: string;
}

/** A domain of an app's own. */
export type AppDomain = Shown<{
  domain: string;
  app_id: string;
  status: "pending" | "verified" | "active" | "error";
  cert_status?: string;
  dns_note?: string;
  error?: string;
  records: AppDomainRecord[];
  created_at: string;
  updated_at: string;
}>;

/** A repository whose pull requests get previews. */
export type PreviewRepo = Shown<{ github_repo_id: number; repo_full_name: string; enabled: boolean }>;

/** How many variables of a file were taken. */
export interface EnvImport {
  readonly imported: number;
  readonly total: number;
}

/** Apps. Servers that have none answer 404. */
export class AppsAPI {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async create(options: AppCreateOptions): Promise<AppInfo> {
    return view<AppInfo>(await this.#transport.request("POST", "/apps", { json: snakeCase(options) }));
  }

  async list(): Promise<AppInfo[]> {
    return view<AppInfo[]>(listIn(await this.#transport.request("GET", "/apps"), "items", "apps"));
  }

  async get(id: string): Promise<AppInfo> {
    return view<AppInfo>(await this.#transport.request("GET", at("apps", id)));
  }

  /** Changes an app, from its next deployment on. `env` replaces all variables. */
  async update(id: string, options: AppUpdateOptions): Promise<AppInfo> {
    return view<AppInfo>(await this.#transport.request("PATCH", at("apps", id), { json: snakeCase(options) }));
  }

  /** Deletes an app and what it runs in. */
  async delete(id: string): Promise<void> {
    await this.#transport.request("DELETE", at("apps", id), { parseAs: "none" });
  }

  /** Begins a deployment. */
  async deploy(id: string, options: { gitRef?: string | undefined } = {}): Promise<DeploymentInfo> {
    const body = { git_ref: options.gitRef };
    return view<DeploymentInfo>(await this.#transport.request("POST", at("apps", id, "deploys"), { json: body }));
  }

  /** Its deployments, newest first. */
  async deployments(id: string): Promise<DeploymentInfo[]> {
    const answer = await this.#transport.request("GET", at("apps", id, "deploys"));
    return view<DeploymentInfo[]>(listIn(answer, "items", "deploys"));
  }

  async deployment(appId: string, deploymentId: string): Promise<DeploymentInfo> {
    return view<DeploymentInfo>(await this.#transport.request("GET", at("apps", appId, "deploys", deploymentId)));
  }

  /** Goes back to the deployment before. */
  async rollback(id: string): Promise<DeploymentInfo> {
    return view<DeploymentInfo>(await this.#transport.request("POST", at("apps", id, "rollback"), { json: {} }));
  }

  /** The lines of a deployment's log, until it ends. */
  async *deployLogs(appId: string, deploymentId: string): AsyncGenerator<string, void, undefined> {
    const path = at("apps", appId, "deploys", deploymentId, "logs");
    for await (const { event, data } of this.#transport.events("GET", path)) {
      if (event === "done") return;
      if (event === "error") throw new PandaStackError(data);
      if (event === "message") yield data;
    }
  }

  /** Apps that are previews of pull requests. */
  async previews(): Promise<AppInfo[]> {
    return (await this.list()).filter(({ isPreview }) => isPreview === true);
  }

  async previewRepos(): Promise<PreviewRepo[]> {
    return view<PreviewRepo[]>(listIn(await this.#transport.request("GET", "/preview-repos"), "repos"));
  }

  async enablePreviewRepo(
    githubRepoId: number,
    options: { repoFullName?: string } = {},
  ): Promise<Shown<{ github_repo_id: number; enabled: boolean }>> {
    const body = { github_repo_id: githubRepoId, repo_full_name: options.repoFullName ?? "" };
    return view(await this.#transport.request("POST", "/preview-repos", { json: body }));
  }

  async disablePreviewRepo(githubRepoId: number): Promise<void> {
    await this.#transport.request("DELETE", at("preview-repos", githubRepoId), { parseAs: "none" });
  }

  listEnv(appId: string): Promise<EnvVar[]> {
    return this.#listEnv(at("apps", appId, "env"));
  }

  async setEnv(
    appId: string,
    key: string,
    value: string,
    { secret = false, scope = "all" }: { secret?: boolean; scope?: EnvScope } = {},
  ): Promise<{ key: string; secret: boolean; scope: string }> {
    return this.#transport.request("PUT", at("apps", appId, "env", key), { json: { value, secret, scope } });
  }

  async unsetEnv(appId: string, key: string): Promise<void> {
    await this.#transport.request("DELETE", at("apps", appId, "env", key), { parseAs: "none" });
  }

  /** Takes variables from the text of a `.env` file. */
  async importEnv(
    appId: string,
    dotenv: string,
    { secret = false, scope = "all" }: { secret?: boolean; scope?: EnvScope } = {},
  ): Promise<EnvImport> {
    return this.#transport.request("POST", at("apps", appId, "env", "import"), { json: { dotenv, secret, scope } });
  }

  /** Gives an app a domain. Its `records` say what to tell the DNS. */
  async addDomain(appId: string, domain: string): Promise<AppDomain> {
    return view<AppDomain>(await this.#transport.request("POST", at("apps", appId, "domains"), { json: { domain } }));
  }

  async listDomains(appId: string): Promise<AppDomain[]> {
    return view<AppDomain[]>(listIn(await this.#transport.request("GET", at("apps", appId, "domains")), "domains"));
  }

  async getDomain(appId: string, domain: string): Promise<AppDomain> {
    return view<AppDomain>(await this.#transport.request("GET", at("apps", appId, "domains", domain)));
  }

  async removeDomain(appId: string, domain: string): Promise<void> {
    await this.#transport.request("DELETE", at("apps", appId, "domains", domain), { parseAs: "none" });
  }

  listPreviewEnv(githubRepoId: number): Promise<EnvVar[]> {
    return this.#listEnv(at("repos", githubRepoId, "preview-env"));
  }

  async setPreviewEnv(
    githubRepoId: number,
    key: string,
    value: string,
    { secret = false }: { secret?: boolean } = {},
  ): Promise<{ key: string; secret: boolean }> {
    return this.#transport.request("PUT", at("repos", githubRepoId, "preview-env", key), { json: { value, secret } });
  }

  async unsetPreviewEnv(githubRepoId: number, key: string): Promise<void> {
    await this.#transport.request("DELETE", at("repos", githubRepoId, "preview-env", key), { parseAs: "none" });
  }

  async importPreviewEnv(githubRepoId: number, dotenv: string, { secret = false }: { secret?: boolean } = {}): Promise<EnvImport> {
    return this.#transport.request("POST", at("repos", githubRepoId, "preview-env", "import"), { json: { dotenv, secret } });
  }

  async #listEnv(path: string): Promise<EnvVar[]> {
    return view<EnvVar[]>(listIn(await this.#transport.request("GET", path), "env"));
  }
}
