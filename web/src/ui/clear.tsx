/** Clearing a thread: what goes and what stays, said before; the receipt after. */
import { useMutation } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import type { ThreadApi } from '../api'
import { useText } from '../i18n'
import type { Receipt } from '../types'
import { Button, Modal } from './basics'
import { useToasts } from './toasts'

interface Props {
  api: ThreadApi
  mode: 'clear' | 'delete' | null
  title: string
  running: boolean
  onClose: () => void
  onDone: (mode: 'clear' | 'delete') => void
}

export function ClearDialog({ api, mode, title, running, onClose, onDone }: Props) {
  const t = useText()
  const toasts = useToasts()
  const [files, setFiles] = useState(false)
  const [receipt, setReceipt] = useState<Receipt | null>(null)
  const act = useMutation({
    mutationFn: () => (mode === 'delete' ? api.remove() : api.clear(!files)),
    onSuccess: (done) => {
      setReceipt(done)
      if (mode) onDone(mode)
    },
    onError: toasts.fail,
  })
  useEffect(() => {
    if (mode) {
      setReceipt(null)
      setFiles(false)
    }
  }, [mode])
  const gone = mode === 'delete' || files
  return (
    <Modal open={mode !== null} onClose={onClose} title={mode === 'delete' ? t.deleteThread : t.clearThread}>
      {receipt ? (
        <div className="space-y-3" data-testid="receipt">
          <p className="font-medium">{t.receipt}</p>
          <table className="data-table w-full text-sm">
            <tbody>
              {Object.entries(receipt.removed).map(([what, { count, bytes }]) => (
                <tr key={what}>
                  <th scope="row">{t.places[what] ?? what}</th>
                  <td>{t.number(count)}</td>
                  <td>{t.bytes(bytes)}</td>
                </tr>
              ))}
            </tbody>
          </table>
          <p className="text-sm text-soft">{t.memoryStays}</p>
          <div className="flex justify-end">
            <Button look="main" onClick={onClose}>
              {t.done}
            </Button>
          </div>
        </div>
      ) : (
        <div className="space-y-3">
          <p>{t.clearWhat(title)}</p>
          <table className="data-table w-full text-sm">
            <tbody>
              {t.clearRows.map(([what, where]) => (
                <tr key={what}>
                  <th scope="row">{what}</th>
                  <td className={where === 'files' ? (gone ? 'text-bad' : 'text-good') : where === 'stays' ? 'text-good' : 'text-bad'}>
                    {where === 'stays' || (where === 'files' && !gone) ? t.stays : t.goes}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          {mode === 'clear' && (
            <label className="flex items-center gap-2 text-sm">
              <input type="checkbox" className="size-4" checked={files} onChange={(event) => setFiles(event.target.checked)} />
              {t.alsoFiles}
            </label>
          )}
          {running && <p className="text-sm text-warn">{t.clearRunning}</p>}
          <p className="text-sm text-soft">{t.noUndo}</p>
          <div className="flex justify-end gap-2">
            <Button onClick={onClose}>{t.cancel}</Button>
            <Button look="bad" disabled={act.isPending} onClick={() => act.mutate()}>
              {act.isPending ? t.working : mode === 'delete' ? t.deleteThread : t.clearThread}
            </Button>
          </div>
        </div>
      )}
    </Modal>
  )
}
