/** The threads, by date. */
import { useInfiniteQuery, useQueryClient } from '@tanstack/react-query'
import { Ellipsis, Plus, Search, Settings } from 'lucide-react'
import { useState } from 'react'
import { threadApi, type WorkspaceApi, type Workspaces } from '../api'
import { useText } from '../i18n'
import type { ThreadInfo } from '../types'
import { Button, Empty, IconButton, Menu } from './basics'
import { useToasts } from './toasts'

interface Props {
  api: WorkspaceApi
  workspace: string
  all: Workspaces
  thread: string
  onWorkspace: (workspace: string) => void
  onThread: (thread: string) => void
  onNew: () => void
  onSearch: () => void
  onSettings: () => void
  onDelete: (thread: ThreadInfo) => void
}

type Group = 'pinned' | 'today' | 'yesterday' | 'week' | 'older'

function groupOf(thread: ThreadInfo, now: Date): Group {
  if (thread.pinned) return 'pinned'
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime()
  const used = Date.parse(thread.used || thread.created)
  const day = 24 * 3600 * 1000
  if (used >= midnight) return 'today'
  if (used >= midnight - day) return 'yesterday'
  return used >= midnight - 7 * day ? 'week' : 'older'
}

export function Sidebar({ api, workspace, all, thread, onWorkspace, onThread, onNew, onSearch, onSettings, onDelete }: Props) {
  const t = useText()
  const toasts = useToasts()
  const queries = useQueryClient()
  const [archived, setArchived] = useState(false)
  const [renaming, setRenaming] = useState<string | null>(null)
  const threads = useInfiniteQuery({
    queryKey: ['threads', api.base, archived],
    queryFn: ({ pageParam }) => api.threads({ cursor: pageParam, archived }),
    initialPageParam: '',
    getNextPageParam: (page) => page.next || undefined,
  })
  const shown = threads.data?.pages.flatMap((page) => page.threads) ?? []
  const now = new Date()
  const change = async (one: ThreadInfo, change: Parameters<ReturnType<typeof threadApi>['change']>[0]) => {
    try {
      await threadApi(workspace, one.thread).change(change)
      await queries.invalidateQueries({ queryKey: ['threads', api.base] })
    } catch (error) {
      toasts.fail(error)
    }
  }
  const groups = (['pinned', 'today', 'yesterday', 'week', 'older'] as const)
    .map((group) => ({ group, threads: shown.filter((one) => groupOf(one, now) === group) }))
    .filter(({ threads }) => threads.length > 0)
  return (
    <div className="flex h-full flex-col gap-2 bg-panel p-2">
      <div className="flex items-center gap-2">
        <span className="px-1 font-semibold tracking-wide">Tenuto</span>
        {all.workspaces.length > 1 ? (
          <select className="field !w-auto min-w-0 flex-1 text-sm" aria-label={t.workspace} value={workspace} onChange={(event) => onWorkspace(event.target.value)}>
            {all.workspaces.map((one) => (
              <option key={one.workspace}>{one.workspace}</option>
            ))}
          </select>
        ) : (
          <span className="min-w-0 flex-1 truncate text-sm text-soft">{workspace}</span>
        )}
      </div>
      <Button onClick={onNew} className="justify-start">
        <Plus size={15} aria-hidden /> {t.newThread}
      </Button>
      <Button onClick={onSearch} look="quiet" className="justify-start">
        <Search size={15} aria-hidden /> {t.search} <kbd className="ml-auto text-xs">Ctrl K</kbd>
      </Button>
      <div className="min-h-0 flex-1 overflow-y-auto" tabIndex={0} role="group" aria-label={t.threads}>
        {threads.data && shown.length === 0 && <Empty>{archived ? t.nothingArchived : t.noThreads}</Empty>}
        {groups.map(({ group, threads }) => (
          <section key={group} aria-label={t.groups[group]}>
            <h2 className="px-2 pt-2 text-xs font-medium text-soft">{t.groups[group]}</h2>
            <ul>
              {threads.map((one) => (
                <li key={one.thread} className={`group flex items-center rounded-md ${one.thread === thread ? 'bg-raised' : 'hover:bg-raised'}`}>
                  {renaming === one.thread ? (
                    <Rename
                      title={one.title}
                      onDone={(title) => {
                        setRenaming(null)
                        if (title && title !== one.title) void change(one, { title })
                      }}
                    />
                  ) : (
                    <button
                      type="button"
                      aria-current={one.thread === thread ? 'page' : undefined}
                      className="flex min-h-9 min-w-0 flex-1 items-center gap-1.5 px-2 text-left text-sm"
                      onClick={() => onThread(one.thread)}
                    >
                      {one.running.length > 0 && <span className="size-2 shrink-0 rounded-full bg-accent" role="img" aria-label={t.running} />}
                      <span className="truncate">{one.title || t.untitled}</span>
                    </button>
                  )}
                  <Menu
                    trigger={
                      <IconButton name={t.threadMenu(one.title || t.untitled)}>
                        <Ellipsis size={15} />
                      </IconButton>
                    }
                    items={[
                      { label: t.rename, onSelect: () => setRenaming(one.thread) },
                      { label: one.pinned ? t.unpin : t.pin, onSelect: () => void change(one, { pinned: !one.pinned }) },
                      { label: one.archived ? t.unarchive : t.archive, onSelect: () => void change(one, { archived: !one.archived }) },
                      { label: t.deleteThread, onSelect: () => onDelete(one), bad: true },
                    ]}
                  />
                </li>
              ))}
            </ul>
          </section>
        ))}
        {threads.hasNextPage && (
          <Button look="quiet" className="mt-1 w-full" onClick={() => void threads.fetchNextPage()}>
            {t.more}
          </Button>
        )}
      </div>
      <div className="flex items-center gap-1 border-t border-line pt-2">
        <span className="min-w-0 flex-1 truncate px-1 text-sm">{all.user}</span>
        <Button look="quiet" aria-pressed={archived} onClick={() => setArchived(!archived)}>
          {archived ? t.showCurrent : t.showArchived}
        </Button>
        <IconButton name={t.settings} onClick={onSettings}>
          <Settings size={16} />
        </IconButton>
      </div>
    </div>
  )
}

function Rename({ title, onDone }: { title: string; onDone: (title: string) => void }) {
  const t = useText()
  const [text, setText] = useState(title)
  return (
    <input
      className="field m-1"
      aria-label={t.rename}
      autoFocus
      maxLength={200}
      value={text}
      onChange={(event) => setText(event.target.value)}
      onBlur={() => onDone(text.trim())}
      onKeyDown={(event) => {
        if (event.key === 'Enter') onDone(text.trim())
        if (event.key === 'Escape') onDone('')
      }}
    />
  )
}
