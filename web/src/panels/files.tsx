/** Where data and products are: files, saved results, and the sandbox. */
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { Download, Eye, RotateCcw } from 'lucide-react'
import { lazy, Suspense, useEffect, useState } from 'react'
import { ApiError, type ThreadApi } from '../api'
import { isImage, Picture } from '../chat/picture'
import { Markdown } from '../chat/markdown'
import { useText } from '../i18n'
import { Button, Empty, IconButton, Modal, Note } from '../ui/basics'
import { useToasts } from '../ui/toasts'

const TablePreview = lazy(() => import('./table'))

export default function FilesPanel({ api, onRecord }: { api: ThreadApi; onRecord: (record: number) => void }) {
  const t = useText()
  const files = useQuery({ queryKey: ['files', api.base], queryFn: api.files, retry: false })
  const [open, setOpen] = useState<{ kind: 'files' | 'results'; name: string } | null>(null)
  void onRecord
  return (
    <div className="space-y-4">
      {files.error instanceof ApiError &&
        (files.error.code === 'not_found' ? <Empty>{t.filesEmpty}</Empty> : <Note bad>{t.problem(files.error.problem)}</Note>)}
      {files.data && files.data.files.length + files.data.results.length === 0 && <Empty>{t.filesEmpty}</Empty>}
      {files.data && files.data.files.length > 0 && (
        <section aria-label={t.artifacts}>
          <h3 className="mb-1 text-sm font-semibold">{t.artifacts}</h3>
          <ul className="space-y-1">
            {files.data.files.map((file) => (
              <Row key={file.name} name={file.name} facts={[t.bytes(file.bytes), t.when(file.changed), file.versions > 1 ? t.versions(file.versions) : '']} url={api.fileUrl(file.name)} onOpen={() => setOpen({ kind: 'files', name: file.name })} />
            ))}
          </ul>
        </section>
      )}
      {files.data && files.data.results.length > 0 && (
        <section aria-label={t.results}>
          <h3 className="mb-1 text-sm font-semibold">{t.results}</h3>
          <ul className="space-y-1">
            {files.data.results.map((result) => (
              <Row
                key={result.name}
                name={result.name}
                facts={[
                  result.rows === null ? '' : t.rows(result.rows),
                  t.bytes(result.bytes),
                  `${result.tool} ${JSON.stringify(result.arguments)}`,
                  result.state === 'kept' ? t.keptUntil(result.expires) : t.resultState[result.state] ?? result.state,
                ]}
                url={api.resultUrl(result.name)}
                gone={result.state !== 'kept'}
                onOpen={() => setOpen({ kind: 'results', name: result.name })}
              />
            ))}
          </ul>
        </section>
      )}
      <Sandbox api={api} />
      <Modal open={open !== null} onClose={() => setOpen(null)} title={open?.name ?? ''} wide>
        {open && <Preview api={api} kind={open.kind} name={open.name} />}
      </Modal>
    </div>
  )
}

function Row({ name, facts, url, gone = false, onOpen }: { name: string; facts: string[]; url: string; gone?: boolean; onOpen: () => void }) {
  const t = useText()
  return (
    <li className="flex items-center gap-1 rounded-md border border-line px-2 py-1 text-sm">
      <div className="min-w-0 flex-1">
        <p className={`truncate ${gone ? 'text-soft line-through' : ''}`}>{name}</p>
        <p className="text-xs text-soft [overflow-wrap:anywhere]">{facts.filter(Boolean).join(' · ')}</p>
      </div>
      {!gone && (
        <>
          <IconButton name={t.previewNamed(name)} onClick={onOpen}>
            <Eye size={15} />
          </IconButton>
          <a href={url} download={name} aria-label={t.downloadNamed(name)} title={t.download} className="inline-flex size-8 items-center justify-center rounded-md text-soft hover:bg-raised">
            <Download size={15} />
          </a>
        </>
      )}
    </li>
  )
}

const MOST_TEXT = 200_000

/** A file as it can be read safely: tables and texts as text, HTML in a frame that may do nothing. */
export function Preview({ api, kind, name }: { api: ThreadApi; kind: 'files' | 'results'; name: string }) {
  const t = useText()
  const ending = name.slice(name.lastIndexOf('.') + 1).toLowerCase()
  const table = kind === 'results' || ['csv', 'json', 'jsonl', 'tsv'].includes(ending)
  const readable = !table && ['md', 'txt', 'py', 'sql', 'log', 'html', 'htm', 'yaml', 'yml', 'toml', 'xml'].includes(ending)
  const text = useQuery({ queryKey: ['file', api.base, name], queryFn: () => api.fileText(name), enabled: readable, retry: false })
  if (isImage(name)) return <Picture api={api} name={name} />
  if (table)
    return (
      <Suspense fallback={<p className="text-soft">{t.loading}</p>}>
        <TablePreview api={api} kind={kind} name={name} />
      </Suspense>
    )
  if (!readable) return <p className="text-soft">{t.noPreview}</p>
  if (text.error instanceof ApiError) return <Note bad>{t.problem(text.error.problem)}</Note>
  if (text.data === undefined) return <p className="text-soft">{t.loading}</p>
  const shown = text.data.slice(0, MOST_TEXT)
  return (
    <div className="space-y-2">
      {shown.length < text.data.length && <Note>{t.beginningOf(shown.length, text.data.length)}</Note>}
      {ending === 'html' || ending === 'htm' ? (
        // No origin, no scripts, no loads: the empty sandbox and the page's own policy both say so.
        <iframe sandbox="" srcDoc={text.data} title={name} className="h-[65vh] w-full rounded border border-line bg-white" />
      ) : ending === 'md' ? (
        <Markdown text={shown} />
      ) : (
        <pre className="text-xs whitespace-pre-wrap [overflow-wrap:anywhere]">{shown}</pre>
      )}
    </div>
  )
}

function Sandbox({ api }: { api: ThreadApi }) {
  const t = useText()
  const toasts = useToasts()
  const queries = useQueryClient()
  const key = ['sandbox', api.base]
  const status = useQuery({ queryKey: key, queryFn: api.sandbox, retry: false })
  const [names, setNames] = useState(false)
  const restart = useMutation({
    mutationFn: api.restartSandbox,
    onSuccess: () => {
      toasts.tell(t.sandboxRestarted)
      void queries.invalidateQueries({ queryKey: key })
    },
    onError: toasts.fail,
  })
  const shown = status.data
  if (!shown) return null
  return (
    <section aria-label={t.sandbox} className="space-y-1 border-t border-line pt-3 text-sm">
      <h3 className="font-semibold">{t.sandbox}</h3>
      {!shown.available ? (
        <Note>
          {t.sandboxMissing}: {shown.cause} {shown.hint}
        </Note>
      ) : !shown.alive ? (
        <p className="text-soft">{t.sandboxIdle}</p>
      ) : (
        <>
          <p>
            {shown.busy ? t.sandboxBusy : t.sandboxAlive} <Countdown key={status.dataUpdatedAt} from={shown.idle_left_s ?? 0} busy={shown.busy ?? false} />
          </p>
          <div className="flex flex-wrap gap-2">
            <Button aria-expanded={names} onClick={() => { setNames(!names); void queries.invalidateQueries({ queryKey: key }) }}>
              {t.variables(shown.names?.length ?? 0)}
            </Button>
            <Button disabled={restart.isPending} onClick={() => restart.mutate()}>
              <RotateCcw size={14} aria-hidden /> {t.restart}
            </Button>
          </div>
          {names && <p className="font-mono text-xs [overflow-wrap:anywhere]">{shown.names?.join(', ') || t.none}</p>}
        </>
      )}
    </section>
  )
}

function Countdown({ from, busy }: { from: number; busy: boolean }) {
  const t = useText()
  const [left, setLeft] = useState(from)
  useEffect(() => {
    const end = Date.now() + from * 1000
    const timer = setInterval(() => setLeft(Math.max(0, (end - Date.now()) / 1000)), 1000)
    return () => clearInterval(timer)
  }, [from])
  return busy ? null : <span className="text-soft">{t.idleLeft(left)}</span>
}
