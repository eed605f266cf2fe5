/**
 * Real machines for AI agents: every sandbox a VM of its own, forkable while it runs, asleep when idle.
 *
 * @packageDocumentation
 */

import "./dispose.js";

export { Client, PandaStack, Client as default } from "./client.js";
export type { ClientConfig } from "./config.js";
export {
  AuthError,
  BadRequestError,
  CapacityError,
  CommandError,
  ConflictError,
  ExecInterrupted,
  ExploreError,
  NetworkError,
  NotFoundError,
  PandaStackError,
  PermissionDeniedError,
  RateLimitError,
  RequestTimeoutError,
  SandboxTimeout,
  ServerError,
  TemplateBuildError,
  type ErrorDetails,
} from "./errors.js";
export { Commands, Sandbox } from "./sandbox.js";
export type {
  EventsOptions,
  ForkTree,
  LogsOptions,
  SandboxChange,
  SandboxForkOptions,
  SandboxForkTreeOptions,
  WakeOptions,
} from "./options.js";
export { SandboxesAPI, type SandboxCreateOptions, type SandboxFilter, type VolumeMount } from "./sandboxes.js";
export { CommandStream } from "./exec.js";
export type { ExecOptions, ExecResult, ExecStreamCallbacks, OutputEvent } from "./exec.js";
export { Process, Processes, type OutputOptions, type StartOptions } from "./processes.js";
export { Terminal, type TerminalOptions } from "./terminal.js";
export { Filesystem, type FileContent, type FileOptions, type SignOptions, type WalkStep } from "./filesystem.js";
export { FileWatcher, type FileEvent, type WatchOptions } from "./watch.js";
export type { TransferOptions, TransferProgress, TransferResult } from "./transfer.js";
export { CodeContext, Execution, Result, type ContextOptions, type RunCodeOptions, type RunOptions } from "./code.js";
export type { BranchOutcome, Candidate, ExploreOptions, ExploreResult } from "./explore.js";
export { Ports, type PreviewOptions } from "./ports.js";
export { PortForward, type PortForwardOptions } from "./forward.js";
export type { ProgressListener } from "./progress.js";
export {
  SnapshotsAPI,
  SnapshotsAPI as SnapshotsNamespace,
  TokensAPI,
  VolumesAPI,
  VolumesAPI as VolumesNamespace,
  type TokenOptions,
  type VolumeOptions,
} from "./resources.js";
export {
  TemplatesAPI,
  type TemplateBuild,
  type TemplateBuildOptions,
  type TemplateDockerfileBuildOptions,
  type TemplateInfo,
  type TemplateRegisterOptions,
} from "./templates.js";
export { AppsAPI, AppsAPI as AppsNamespace } from "./apps.js";
export type {
  AppCreateOptions,
  AppDomain,
  AppDomainRecord,
  AppInfo,
  AppUpdateOptions,
  DeploymentInfo,
  EnvImport,
  EnvScope,
  EnvVar,
  PreviewRepo,
} from "./apps.js";
export { DatabasesAPI, DatabasesAPI as DatabasesNamespace } from "./databases.js";
export type { DatabaseCloneOptions, DatabaseConnection, DatabaseCreateOptions, DatabaseInfo } from "./databases.js";
export {
  FunctionsAPI,
  FunctionsAPI as FunctionsNamespace,
  SchedulesAPI,
  SchedulesAPI as SchedulesNamespace,
} from "./functions.js";
export type {
  FunctionCreateOptions,
  FunctionDeployOptions,
  FunctionInfo,
  FunctionMetrics,
  FunctionRun,
  FunctionRunInfo,
  FunctionRuntime,
  FunctionUpdateOptions,
  ScheduleCreateOptions,
  ScheduleInfo,
  ScheduleUpdateOptions,
} from "./functions.js";
export type { Given, Shown } from "./view.js";
export type { Query, RequestOptions } from "./transport.js";
export type {
  Ancestor,
  AttachedVolume,
  DeletedSandboxes,
  MeInfo,
  SandboxInfo,
  SandboxTree,
  SignedUrl,
  TemplateProgress,
  TreeNode,
  TreeSnapshot,
} from "./additions.js";
export type {
  AuditEntry,
  BootStats,
  ContextInfo,
  CreatedToken,
  CreateTimings,
  DeviceMetrics,
  FileInfo,
  FileWritten,
  ForkFailure,
  GuestMetrics,
  Health,
  LifecycleInfo,
  NetworkMode,
  Organisation,
  Percentiles,
  PortInfo,
  PreviewLink,
  ProcessInfo,
  PromoteResult,
  SandboxEvent,
  SandboxMetrics,
  SandboxStatus,
  SignalName,
  SnapshotInfo,
  TokenInfo,
  VersionInfo,
  VolumeInfo,
} from "./generated.js";
