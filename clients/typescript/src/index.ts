export { Holdfast } from "./client.js";
export type { Options, Pending, Receipt, Release, Session, Snapshot } from "./client.js";
export type { Content, DownloadOptions } from "./download.js";
export { HoldfastMismatch, HoldfastProblem, type ProblemBody } from "./problem.js";
export type { FollowOptions, Frame } from "./stream.js";
