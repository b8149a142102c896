/** The server's resources. Every failure is an `ApiError` with the server's stable code and next step. */
import type {
  ContextView,
  FilesView,
  Fork,
  LogRecord,
  MemoryView,
  Problem,
  Receipt,
  RecordPage,
  RowsView,
  RunInfo,
  SandboxView,
  SearchHit,
  Setting,
  TaskView,
  ThreadInfo,
  WhyView,
} from './types'

export class ApiError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail)
  }
  get code(): string {
    return this.problem.code
  }
}

const OFFLINE: Problem = { status: 0, code: 'offline', detail: '', hint: '', details: {} }

async function call(method: string, path: string, body?: unknown): Promise<Response> {
  const form = body instanceof FormData
  let response: Response
  try {
    response = await fetch(path, {
      method,
      ...(body === undefined ? {} : { body: form ? body : JSON.stringify(body) }),
      headers: body === undefined || form ? {} : { 'content-type': 'application/json' },
    })
  } catch {
    throw new ApiError(OFFLINE)
  }
  if (!response.ok) {
    const problem = await response.json().catch(() => ({ status: response.status, code: 'internal_error', detail: response.statusText }))
    throw new ApiError({ hint: '', details: {}, ...problem })
  }
  return response
}

async function json<T>(method: string, path: string, body?: unknown): Promise<T> {
  return (await (await call(method, path, body)).json()) as T
}

function query(values: Record<string, string | number | boolean | null | undefined>): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== '')
  return given.length ? '?' + new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString() : ''
}

const id = encodeURIComponent

export interface Workspaces {
  workspaces: { workspace: string; role: string; grants: string[] }[]
  user: string
}

export const workspaces = () => json<Workspaces>('GET', '/api/workspaces')

export interface Model {
  name: string
  model: string
  default: boolean
  found: boolean
  base_url: string
}

/** A workspace's resources. */
export function workspaceApi(workspace: string) {
  const base = `/api/workspaces/${id(workspace)}`
  return {
    base,
    threads: (options: { cursor?: string; q?: string; archived?: boolean; limit?: number } = {}) =>
      json<{ threads: ThreadInfo[]; next: string }>('GET', `${base}/threads${query(options)}`),
    createAs: (thread: string, model: string) => json<ThreadInfo>('POST', `${base}/threads`, { thread, model }),
    search: (q: string) => json<{ found: SearchHit[] }>('GET', `${base}/search${query({ q, limit: 20 })}`),
    settings: () => json<{ settings: Setting[] }>('GET', `${base}/settings`),
    usage: () => json<{ threads: Record<string, unknown>[] }>('GET', `${base}/usage`),
    skills: () => json<{ skills: { name: string; description: string }[]; instructions: string; notices: string[] }>('GET', `${base}/skills`),
    models: () => json<{ models: Model[] }>('GET', `${base}/models`),
    addModel: (model: Record<string, unknown>) => json<{ models: Model[] }>('POST', `${base}/models`, model),
    tools: () => json<{ servers: { name: string; where: string }[] }>('GET', `${base}/tools`),
    addServer: (server: Record<string, unknown>) => json<{ servers: { name: string; where: string }[] }>('POST', `${base}/tools`, server),
    memory: () => json<MemoryView>('GET', `${base}/memory`),
    switchMemory: (switches: { use?: boolean; extract?: boolean }) => json<MemoryView>('PATCH', `${base}/memory`, switches),
    addFact: (fact: { text: string; importance?: number; applies_to?: string }) => json('POST', `${base}/memory/facts`, fact),
    editFact: (fact: string, text: string) => json<MemoryView>('PATCH', `${base}/memory/facts/${id(fact)}`, { text }),
    forgetFacts: (facts: string[]) => json<{ memory: MemoryView }>('POST', `${base}/memory/forget`, { facts }),
    deleteFacts: (facts: string[], all = false) =>
      json<{ receipt: Receipt; memory: MemoryView }>('POST', `${base}/memory/delete`, { facts, all }),
  }
}

/** A thread's resources. */
export function threadApi(workspace: string, thread: string) {
  const base = `/api/workspaces/${id(workspace)}/threads/${id(thread)}`
  return {
    base,
    read: () => json<ThreadInfo>('GET', base),
    change: (change: Partial<Pick<ThreadInfo, 'title' | 'model' | 'pinned' | 'archived'>>) => json<ThreadInfo>('PATCH', base, change),
    remove: () => json<Receipt>('DELETE', base),
    clear: (keepFiles: boolean) => json<Receipt>('POST', `${base}/clear`, { keep_files: keepFiles }),
    records: (before?: number | null, limit = 100) => json<RecordPage>('GET', `${base}/records${query({ before, limit })}`),
    record: (seq: number) => json<LogRecord>('GET', `${base}/records/${seq}`),
    send: (run: string, text: string) => json<RunInfo>('POST', `${base}/messages`, { id: run, text }),
    edit: (turn: number, run: string, text: string) => json<RunInfo>('POST', `${base}/turns/${turn}/edit`, { id: run, text }),
    again: (turn: number, run: string) => json<RunInfo>('POST', `${base}/turns/${turn}/regenerate`, { id: run }),
    stop: (run: string) => json<RunInfo>('POST', `${base}/runs/${id(run)}/stop`),
    decide: (run: string, callId: string, allow: boolean) => json('POST', `${base}/runs/${id(run)}/calls/${id(callId)}`, { allow }),
    branches: () => json<{ forks: Fork[] }>('GET', `${base}/branches`),
    select: (record: number) => json('POST', `${base}/branches`, { record }),
    context: (turn?: number | null, step?: number | null) => json<ContextView>('GET', `${base}/context${query({ turn, step })}`),
    nextContext: (text: string) => json<ContextView>('POST', `${base}/context/next`, { text }),
    why: (words: string, turn?: number | null) => json<WhyView>('GET', `${base}/why${query({ words, turn })}`),
    compact: (focus: string) => json('POST', `${base}/compact`, { focus }),
    task: () => json<TaskView>('GET', `${base}/task`),
    changeTask: (change: { action: string; item?: string; kind?: string; text?: string }) => json<TaskView>('POST', `${base}/task`, change),
    taskHistory: () => json<{ versions: { change: Record<string, unknown>; ledger: TaskView }[] }>('GET', `${base}/task/history`),
    refreshTask: (focus: string) => json<{ report: { result: string; reason: string }; task: TaskView }>('POST', `${base}/task/refresh`, { focus }),
    files: () => json<FilesView>('GET', `${base}/files`),
    upload: (file: File | Blob, name: string) => {
      const form = new FormData()
      form.append('file', file, name)
      return json<{ name: string; bytes: number }>('POST', `${base}/files`, form)
    },
    fileUrl: (name: string, version?: number) => `${base}/files/${id(name)}${query({ version })}`,
    resultUrl: (name: string) => `${base}/results/${id(name)}`,
    fileText: async (name: string) => (await call('GET', `${base}/files/${id(name)}`)).text(),
    rows: (kind: 'files' | 'results', name: string, offset: number) =>
      json<RowsView>('GET', `${base}/${kind}/${id(name)}/rows${query({ offset, limit: 1000 })}`),
    sandbox: () => json<SandboxView>('GET', `${base}/sandbox`),
    restartSandbox: () => json<SandboxView>('POST', `${base}/sandbox/restart`),
  }
}

export type ThreadApi = ReturnType<typeof threadApi>
export type WorkspaceApi = ReturnType<typeof workspaceApi>
