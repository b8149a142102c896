/** The page: threads on the left, the conversation, and what stands behind it on the right. */
import { type QueryClient, useQuery, useQueryClient } from '@tanstack/react-query'
import { Languages, Menu as MenuIcon, Moon, PanelRight, Sun, X, Ellipsis } from 'lucide-react'
import { Tabs } from 'radix-ui'
import { lazy, Suspense, useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from 'react'
import { ApiError, threadApi, workspaceApi, workspaces, type Workspaces } from './api'
import { type Command as ChatCommand, Composer } from './chat/composer'
import { type Chat, Conversation } from './chat/conversation'
import { useLook, useText } from './i18n'
import { go, type Panel, useRoute } from './state/route'
import { ThreadStore } from './state/store'
import { over, type Turn, turnsOf } from './state/turns'
import type { LogRecord, MemoryView, ThreadInfo, ThreadNews } from './types'
import { Button, IconButton, Menu, Modal, Note } from './ui/basics'
import type { Command } from './ui/palette'
import { Sidebar } from './ui/sidebar'
import { useToasts } from './ui/toasts'

const ContextPanel = lazy(() => import('./panels/context'))
const TaskPanel = lazy(() => import('./panels/task'))
const MemoryPanel = lazy(() => import('./panels/memory'))
const FilesPanel = lazy(() => import('./panels/files'))
const FilePreview = lazy(() => import('./panels/files').then((module) => ({ default: module.Preview })))
const Palette = lazy(() => import('./ui/palette').then((module) => ({ default: module.Palette })))
const SettingsDialog = lazy(() => import('./ui/settings').then((module) => ({ default: module.SettingsDialog })))
const ClearDialog = lazy(() => import('./ui/clear').then((module) => ({ default: module.ClearDialog })))
const WholeText = lazy(() => import('./chat/whole'))

/** What a key opens must be there when it is pressed: fetched once the page has been drawn. */
export const fetchAhead = () => Promise.all([import('./ui/palette'), import('./panels/context'), import('./ui/toastlist')])

/** Read anew. An answer that is on its way may be older than the news, so that it isn't waited for. */
async function renew(queries: QueryClient, key: string): Promise<void> {
  await queries.cancelQueries({ queryKey: [key] })
  await queries.invalidateQueries({ queryKey: [key] })
}

const PANELS: Panel[] = ['context', 'task', 'memory', 'files']
/** The tab that a piece of news makes stale. */
const STALE: Record<string, string[]> = {
  run_started: ['threads'],
  turn_ended: ['threads', 'memory', 'context', 'why', 'files', 'sandbox', 'task', 'branches', 'usage'],
  task: ['task', 'context'],
  memory: ['memory'],
  thread: ['threads'],
  files: ['files'],
  branch: ['context', 'task', 'branches', 'why'],
  cleared: ['threads', 'context', 'task', 'files', 'sandbox', 'branches', 'why'],
}

function useWide(query: string): boolean {
  return useSyncExternalStore(
    (listener) => {
      const media = matchMedia(query)
      media.addEventListener('change', listener)
      return () => media.removeEventListener('change', listener)
    },
    () => matchMedia(query).matches,
  )
}

export function App() {
  const t = useText()
  const route = useRoute()
  const known = useQuery({ queryKey: ['workspaces'], queryFn: workspaces })
  const first = known.data?.workspaces[0]?.workspace
  useEffect(() => {
    if (!route.workspace && first) go({ workspace: first }, true)
  }, [route.workspace, first])
  if (known.error instanceof ApiError)
    return (
      <main className="p-6">
        <h1 className="sr-only">Tenuto</h1>
        <Note bad>{t.problem(known.error.problem)}</Note>
        <Button className="mt-3" onClick={() => void known.refetch()}>
          {t.retry}
        </Button>
      </main>
    )
  if (!known.data || !route.workspace)
    return (
      <main className="p-6 text-soft">
        <h1 className="sr-only">Tenuto</h1>
        {known.data && !first ? <Note bad>{t.noWorkspace}</Note> : t.loading}
      </main>
    )
  return <Page key={route.workspace} all={known.data} />
}

const FRESH = 'tenuto.fresh'

/** A thread that nobody has written to yet has an id already: its draft outlives a reload, files can be put beside it. */
function freshId(another = false): string {
  const known = another ? null : sessionStorage.getItem(FRESH)
  const fresh = known ?? `t-${Date.now().toString(36)}-${crypto.randomUUID().slice(0, 6)}`
  sessionStorage.setItem(FRESH, fresh)
  return fresh
}

function Page({ all }: { all: Workspaces }) {
  const t = useText()
  const look = useLook()
  const toasts = useToasts()
  const queries = useQueryClient()
  const route = useRoute()
  const api = useMemo(() => workspaceApi(route.workspace), [route.workspace])
  const [fresh, setFresh] = useState(() => freshId())
  const thread = route.thread || fresh
  const threadApis = useMemo(() => threadApi(route.workspace, thread), [route.workspace, thread])
  const sides = useWide('(min-width: 900px)')
  const threeColumns = useWide('(min-width: 1200px)')
  const [nav, setNav] = useState(false)
  const [palette, setPalette] = useState(false)
  const [settings, setSettings] = useState(false)
  const [shortcuts, setShortcuts] = useState(false)
  const [clearing, setClearing] = useState<{ mode: 'clear' | 'delete'; thread: string; title: string } | null>(null)
  const [preview, setPreview] = useState<string | null>(null)
  const [whole, setWhole] = useState<LogRecord | null>(null)
  const [wanted, setWanted] = useState<{ record: number; wish: number } | null>(null)
  const [said, setSaid] = useState('')
  const wish = useRef(0)

  // -- news of the thread -------------------------------------------------------------------------------------

  const facts = useRef<Set<string> | null>(null)
  const undo = useCallback(
    async (fact: string) => {
      try {
        const done = await api.deleteFacts([fact])
        queries.setQueryData(['memory', api.base], done.memory)
        toasts.tell(t.undone)
      } catch (error) {
        toasts.fail(error)
      }
    },
    [api, queries, toasts, t],
  )
  const remembered = useCallback(
    (now: MemoryView) => {
      const before = facts.current
      facts.current = new Set(now.facts.map((fact) => fact.id))
      if (!before) return
      for (const fact of now.facts)
        if (!before.has(fact.id) && fact.status === 'active' && fact.origin !== 'user') toasts.tell(t.remembered(fact.text), { label: t.undo, run: () => void undo(fact.id) })
    },
    [toasts, t, undo],
  )
  const memory = useQuery({ queryKey: ['memory', api.base], queryFn: api.memory, retry: false })
  useEffect(() => {
    if (memory.data) remembered(memory.data)
  }, [memory.data, remembered])

  const news = useCallback(
    (one: ThreadNews) => {
      for (const key of STALE[one.type] ?? []) void renew(queries, key)
    },
    [queries],
  )
  const store = useMemo(() => new ThreadStore(route.workspace, thread, news), [route.workspace, thread, news])
  useEffect(() => {
    store.start()
    return () => store.stop()
  }, [store])
  const state = useSyncExternalStore(store.subscribe, store.get)
  const going = state.thread.runs.filter((run) => !over(run))
  const busy = going.length > 0

  // Said once, when it is whole: a screen reader must not read single words.
  const wasBusy = useRef(false)
  useEffect(() => {
    if (wasBusy.current && !busy) setSaid(t.answerDone)
    if (busy) setSaid('')
    wasBusy.current = busy
  }, [busy, t])

  const info = useQuery({ queryKey: ['threads', api.base, 'one', thread], queryFn: threadApis.read, retry: false, enabled: state.loaded && !state.missing })
  const title = info.data?.title || (state.missing || !state.loaded ? t.newThread : t.untitled)
  const forks = useQuery({ queryKey: ['branches', threadApis.base], queryFn: threadApis.branches, retry: false, enabled: info.data?.branched ?? false })
  const models = useQuery({ queryKey: ['models', api.base], queryFn: api.models, retry: false })
  useEffect(() => {
    document.title = `${title} · Tenuto`
  }, [title])

  // -- what a person does --------------------------------------------------------------------------------------

  const openThread = useCallback((to: string) => {
    setNav(false)
    go({ thread: to, turn: null, record: null })
  }, [])
  const newThread = useCallback(() => {
    setFresh(freshId(true))
    openThread('')
    requestAnimationFrame(() => document.querySelector<HTMLElement>('[data-composer]')?.focus())
  }, [openThread])

  const show = useCallback(
    (record: number) => {
      void store.reach(record).then((there) => {
        wish.current += 1
        if (there) setWanted({ record, wish: wish.current })
      })
      if (!threeColumns) go({ panel: '' })
    },
    [store, threeColumns],
  )
  const goTo = useCallback((to: string, record: number) => go({ thread: to, record, turn: null }), [])
  useEffect(() => {
    if (route.record !== null && state.loaded) {
      show(route.record)
      go({ record: null }, true)
    }
  }, [route.record, state.loaded, show])

  const settle = useCallback(
    async (what: Promise<unknown>) => {
      try {
        await what
      } catch (error) {
        toasts.fail(error)
        throw error
      }
    },
    [toasts],
  )
  const quietly = useCallback((what: Promise<unknown>) => void settle(what).catch(() => undefined), [settle])

  const send = useCallback(
    async (text: string) => {
      await settle(store.send(text))
      if (!route.thread) {
        sessionStorage.removeItem(FRESH)
        go({ thread }, true)
      }
      void renew(queries, 'threads')
    },
    [settle, store, route.thread, thread, queries],
  )

  const upload = useCallback(
    async (files: { file: Blob; name: string }[]) => {
      for (const { file, name } of files) {
        try {
          const added = await threadApis.upload(file, name)
          toasts.tell(t.attached(added.name))
        } catch (error) {
          toasts.fail(error)
        }
      }
      if (!route.thread && files.length > 0) go({ thread }, true)
      void store.readTail()
      void renew(queries, 'files')
    },
    [threadApis, toasts, t, route.thread, thread, store, queries],
  )

  const openPanel = useCallback((panel: Panel, turn: number | null = null) => go({ panel, turn }), [])

  const chat = useMemo<Chat>(
    () => ({
      api: threadApis,
      forks: new Map((forks.data?.forks ?? []).flatMap((fork) => fork.options.map((one) => [one.question, fork.options] as const))),
      busy,
      edit: (turn, text) => settle(store.edit(turn.turn, text)),
      again: (turn) => quietly(store.regenerate(turn.turn, turn.question.text)),
      retry: (turn: Turn) => quietly(turn.turn > 0 ? store.regenerate(turn.turn, turn.question.text) : store.send(turn.question.text)),
      select: (record) => quietly(threadApis.select(record)),
      decide: (run, call, allow) => quietly(threadApis.decide(run, call, allow)),
      openContext: (turn) => openPanel('context', turn),
      preview: setPreview,
      whole: (record) => quietly(threadApis.record(record).then(setWhole)),
    }),
    [threadApis, forks.data, busy, settle, quietly, store, openPanel],
  )

  const download = useCallback(
    (format: 'jsonl' | 'markdown') => {
      const link = document.createElement('a')
      link.href = `${threadApis.base}/export?format=${format}`
      link.download = ''
      link.click()
    },
    [threadApis],
  )

  const command = useCallback(
    (name: ChatCommand, rest: string) => {
      if (name === '/compact') quietly(threadApis.compact(rest).then(() => toasts.tell(t.compacted)))
      if (name === '/clear') setClearing({ mode: 'clear', thread, title })
      if (name === '/remember') rest ? quietly(api.addFact({ text: rest }).then(() => renew(queries, 'memory'))) : openPanel('memory')
      if (name === '/context') openPanel('context')
      if (name === '/task') openPanel('task')
      if (name === '/files') openPanel('files')
      if (name === '/export') download('markdown')
    },
    [quietly, threadApis, toasts, t, thread, title, api, queries, openPanel, download],
  )

  const editLast = useCallback(() => {
    const pencils = document.querySelectorAll<HTMLElement>(`[data-testid=transcript] [aria-label="${CSS.escape(t.editQuestion)}"]`)
    pencils[pencils.length - 1]?.click()
  }, [t])

  const nextTheme = () => look.setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark')
  const nextLanguage = () => look.setLanguage(look.language === 'zh' ? 'en' : 'zh')
  const movePanel = useCallback(() => {
    const at = route.panel ? PANELS.indexOf(route.panel) : -1
    openPanel(PANELS[(at + 1) % PANELS.length]!)
  }, [route.panel, openPanel])

  const commands = useMemo<Command[]>(
    () => [
      { name: t.newThread, keys: 'Ctrl J', run: newThread },
      ...PANELS.map((panel) => ({ name: t.openPanel(t.panels[panel]), keys: panel === 'context' ? 'Ctrl .' : '', run: () => openPanel(panel) })),
      { name: t.clearThread, run: () => setClearing({ mode: 'clear', thread, title }) },
      { name: t.deleteThread, run: () => setClearing({ mode: 'delete', thread, title }) },
      { name: t.compact, run: () => command('/compact', '') },
      { name: t.exportMarkdown, run: () => download('markdown') },
      { name: t.exportLog, run: () => download('jsonl') },
      { name: t.settings, run: () => setSettings(true) },
      { name: t.shortcuts, keys: '?', run: () => setShortcuts(true) },
      { name: t.switchTheme, run: nextTheme },
      { name: t.switchLanguage, run: nextLanguage },
    ],
    // The two switches read their state when they run.
    // eslint-disable-next-line
    [t, newThread, openPanel, command, download, thread, title, look.language],
  )

  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.isComposing) return
      const chord = event.ctrlKey || event.metaKey
      const typing = event.target instanceof HTMLElement && event.target.matches('input, textarea, select, [contenteditable]')
      const does = (what: () => void) => {
        event.preventDefault()
        what()
      }
      if (chord && event.key.toLowerCase() === 'k') does(() => setPalette(true))
      else if (chord && event.key.toLowerCase() === 'j') does(newThread)
      else if (chord && event.shiftKey && event.code === 'Period') does(movePanel)
      else if (chord && event.code === 'Period') does(() => (route.panel ? go({ panel: '' }) : openPanel('context')))
      else if (chord && event.key === '/') does(() => setShortcuts(true))
      else if (!typing && event.key === '?') does(() => setShortcuts(true))
      else if (!typing && !chord && event.key === '/') does(() => document.querySelector<HTMLElement>('[data-composer]')?.focus())
      else if (!typing && event.key === 'Escape' && busy && !document.querySelector('[role=dialog]')) does(() => quietly(store.halt()))
    }
    addEventListener('keydown', pressed)
    return () => removeEventListener('keydown', pressed)
  }, [newThread, movePanel, openPanel, route.panel, busy, quietly, store])

  // -- the page ------------------------------------------------------------------------------------------------

  const turns = useMemo(() => turnsOf(state.thread), [state.thread])
  const numbers = useMemo(() => turns.map((turn) => turn.turn).filter((turn) => turn > 0), [turns])
  const draftKey = `tenuto.draft.${route.workspace}.${thread}`
  const empty = state.loaded && turns.length === 0
  const sidebar = (
    <Sidebar
      api={api}
      workspace={route.workspace}
      all={all}
      thread={route.thread}
      onWorkspace={(workspace) => go({ workspace, thread: '', panel: '', turn: null })}
      onThread={openThread}
      onNew={newThread}
      onSearch={() => {
        setNav(false)
        setPalette(true)
      }}
      onSettings={() => {
        setNav(false)
        setSettings(true)
      }}
      onDelete={(one: ThreadInfo) => setClearing({ mode: 'delete', thread: one.thread, title: one.title })}
    />
  )
  const panel = route.panel && (
    <Tabs.Root value={route.panel} onValueChange={(value) => openPanel(value as Panel)} className="flex h-full flex-col">
      <div className="flex items-center border-b border-line px-2">
        <Tabs.List className="flex flex-1 gap-1 overflow-x-auto" aria-label={t.panel}>
          {PANELS.map((one) => (
            <Tabs.Trigger key={one} value={one} className="min-h-10 border-b-2 border-transparent px-2 text-sm whitespace-nowrap data-[state=active]:border-accent data-[state=active]:font-medium">
              {t.panels[one]}
            </Tabs.Trigger>
          ))}
        </Tabs.List>
        <IconButton name={t.closePanel} onClick={() => go({ panel: '' })}>
          <X size={16} />
        </IconButton>
      </div>
      <Tabs.Content value={route.panel} className="min-h-0 flex-1 overflow-y-auto p-3" data-testid={`panel-${route.panel}`}>
        <Suspense fallback={<p className="text-sm text-soft">{t.loading}</p>}>
          {route.panel === 'context' && (
            <ContextPanel
              key={thread}
              api={threadApis}
              turn={route.turn}
              turns={numbers}
              draft={() => sessionStorage.getItem(draftKey) ?? ''}
              onTurn={(turn) => go({ turn })}
              onRecord={show}
            />
          )}
          {route.panel === 'task' && <TaskPanel key={thread} api={threadApis} onRecord={show} />}
          {route.panel === 'memory' && <MemoryPanel api={api} onSource={goTo} />}
          {route.panel === 'files' && <FilesPanel key={thread} api={threadApis} onRecord={show} />}
        </Suspense>
      </Tabs.Content>
    </Tabs.Root>
  )

  return (
    <div className="flex h-full">
      <nav aria-label={t.skip} className="contents">
        <a href="#transcript" className="sr-only-focusable absolute top-2 left-2 z-50 rounded bg-accent px-3 py-1 text-accent-ink" onClick={(event) => { event.preventDefault(); document.querySelector<HTMLElement>('[data-testid=transcript]')?.focus() }}>
          {t.skip}
        </a>
      </nav>
      {sides && (
        <nav aria-label={t.threads} className="w-64 shrink-0 border-r border-line">
          {sidebar}
        </nav>
      )}
      <main className="flex min-w-0 flex-1 flex-col">
        <header className="flex items-center gap-1 border-b border-line px-2 py-1">
          {!sides && (
            <IconButton name={t.threads} onClick={() => setNav(true)}>
              <MenuIcon size={17} />
            </IconButton>
          )}
          <h1 className="min-w-0 flex-1 truncate px-1 text-base font-semibold">{title}</h1>
          {models.data && models.data.models.length > 0 && (
            <select
              className="field !w-auto max-w-36 text-sm max-sm:hidden"
              aria-label={t.model}
              value={info.data?.model ?? models.data.models.find((one) => one.default)?.name ?? ''}
              onChange={(event) => quietly((state.missing ? api.createAs(thread, event.target.value).then(() => go({ thread }, true)) : threadApis.change({ model: event.target.value })).then(() => renew(queries, 'threads')))}
            >
              {models.data.models.filter((one) => !one.found).map((one) => (
                <option key={one.name}>{one.name}</option>
              ))}
            </select>
          )}
          <IconButton name={t.switchTheme} onClick={nextTheme}>
            {document.documentElement.dataset.theme === 'dark' ? <Sun size={16} /> : <Moon size={16} />}
          </IconButton>
          <IconButton name={t.switchLanguage} onClick={nextLanguage}>
            <Languages size={16} />
          </IconButton>
          <IconButton name={t.panel} aria-pressed={route.panel !== ''} onClick={() => (route.panel ? go({ panel: '' }) : openPanel('context'))}>
            <PanelRight size={16} />
          </IconButton>
          <Menu
            trigger={
              <IconButton name={t.threadMenu(title)}>
                <Ellipsis size={16} />
              </IconButton>
            }
            items={[
              { label: t.exportMarkdown, onSelect: () => download('markdown') },
              { label: t.exportLog, onSelect: () => download('jsonl') },
              { label: t.compact, onSelect: () => command('/compact', '') },
              { label: t.clearThread, onSelect: () => setClearing({ mode: 'clear', thread, title }), bad: true },
              { label: t.deleteThread, onSelect: () => setClearing({ mode: 'delete', thread, title }), bad: true },
            ]}
          />
        </header>
        {state.link === 'lost' && (
          <div className="px-3 pt-2">
            <Note>{t.linkLost}</Note>
          </div>
        )}
        {state.error && (
          <div className="px-3 pt-2">
            <Note bad>{t.problem(state.error.problem)}</Note>
          </div>
        )}
        {empty ? <Welcome onExample={(text) => quietly(send(text))} /> : <Conversation key={thread} thread={state.thread} chat={chat} loadingOlder={state.loadingOlder} readOlder={() => void store.readOlder()} wanted={wanted} />}
        <Composer draftKey={draftKey} busy={busy} onSend={send} onStop={() => quietly(store.halt())} onFiles={upload} onCommand={command} onEditLast={editLast} />
      </main>
      {panel && threeColumns && (
        <aside aria-label={t.panel} className="w-[380px] shrink-0 border-l border-line">
          {panel}
        </aside>
      )}
      {panel && !threeColumns && (
        <aside aria-label={t.panel} className="fixed inset-y-0 right-0 z-30 w-full border-l border-line bg-page shadow-xl sm:w-[400px]">
          {panel}
        </aside>
      )}
      {!sides && nav && (
        <Modal open onClose={() => setNav(false)} title={t.threads}>
          <div className="-m-4 h-[70vh]">{sidebar}</div>
        </Modal>
      )}
      <p role="status" className="sr-only">
        {said}
      </p>
      <Suspense fallback={null}>
        {palette && <Palette open api={api} commands={commands} onClose={() => setPalette(false)} onThread={openThread} onHit={goTo} />}
        {settings && <SettingsDialog open api={api} onClose={() => setSettings(false)} />}
        {clearing && (
          <ClearDialog
            api={threadApi(route.workspace, clearing.thread)}
            mode={clearing.mode}
            title={clearing.title}
            running={busy && clearing.thread === thread}
            onClose={() => setClearing(null)}
            onDone={(mode) => {
              void renew(queries, 'threads')
              if (mode === 'delete' && clearing.thread === thread) newThread()
            }}
          />
        )}
        {preview && (
          <Modal open onClose={() => setPreview(null)} title={preview} wide>
            <FilePreview api={threadApis} kind="files" name={preview} />
          </Modal>
        )}
        {whole && (
          <Modal open onClose={() => setWhole(null)} title={t.recordNumber(whole.seq)} wide>
            <WholeText record={whole} />
          </Modal>
        )}
      </Suspense>
      <Modal open={shortcuts} onClose={() => setShortcuts(false)} title={t.shortcuts}>
        <table className="data-table w-full text-sm">
          <tbody>
            {t.shortcutRows.map(([keys, what]) => (
              <tr key={keys}>
                <th scope="row">
                  <kbd>{keys}</kbd>
                </th>
                <td>{what}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Modal>
    </div>
  )
}

function Welcome({ onExample }: { onExample: (text: string) => void }) {
  const t = useText()
  return (
    <div className="min-h-0 flex-1 overflow-y-auto" tabIndex={0} role="group" aria-label={t.welcome}>
      <div className="mx-auto max-w-[640px] px-4 py-10">
        <p className="text-lg font-semibold">{t.welcome}</p>
        <p className="mt-1 text-soft">{t.welcomeExplained}</p>
        <ul className="mt-5 grid gap-2 sm:grid-cols-2">
          {t.examples.map((example) => (
            <li key={example}>
              <Button className="h-full w-full !justify-start p-3 text-left" onClick={() => onExample(example)}>
                {example}
              </Button>
            </li>
          ))}
        </ul>
      </div>
    </div>
  )
}
