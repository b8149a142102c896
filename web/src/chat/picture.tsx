/** A chart or picture of the thread: in its place, large on demand, and as a download. */
import { Download, Maximize2 } from 'lucide-react'
import { useState } from 'react'
import type { ThreadApi } from '../api'
import { useText } from '../i18n'
import { IconButton, Modal } from '../ui/basics'

export function isImage(name: string): boolean {
  return /\.(png|jpe?g|gif|webp|svg)$/i.test(name)
}

export function Picture({ api, name }: { api: ThreadApi; name: string }) {
  const t = useText()
  const [open, setOpen] = useState(false)
  const [lost, setLost] = useState(false)
  const url = api.fileUrl(name)
  if (lost) return <p className="border-t border-line px-3 py-2 text-soft">{t.fileGone(name)}</p>
  return (
    <figure className="border-t border-line p-2">
      <img
        src={url}
        alt={t.chartNamed(name)}
        width={720}
        height={360}
        onError={() => setLost(true)}
        className="mx-auto h-auto max-h-[420px] w-auto max-w-full rounded bg-white object-contain"
      />
      <figcaption className="flex items-center justify-end gap-1 text-xs text-soft">
        <span className="flex-1 truncate">{name}</span>
        <IconButton name={t.openLarge(name)} onClick={() => setOpen(true)}>
          <Maximize2 size={15} />
        </IconButton>
        <a href={url} download={name} aria-label={t.downloadNamed(name)} title={t.download} className="inline-flex size-8 items-center justify-center rounded-md hover:bg-raised">
          <Download size={15} />
        </a>
      </figcaption>
      <Modal open={open} onClose={() => setOpen(false)} title={name} wide>
        <img src={url} alt={t.chartNamed(name)} className="mx-auto max-w-full bg-white" />
      </Modal>
    </figure>
  )
}
