/** Markdown with formulas; loaded when a text has one. */
import 'katex/dist/katex.min.css'
import ReactMarkdown from 'react-markdown'
import rehypeKatex from 'rehype-katex'
import remarkGfm from 'remark-gfm'
import remarkMath from 'remark-math'
import { COMPONENTS, urlTransform } from './markdown'

export default function Maths({ text }: { text: string }) {
  return (
    <ReactMarkdown
      remarkPlugins={[remarkGfm, remarkMath]}
      // trust is KaTeX's switch for links and HTML in formulas: off.
      rehypePlugins={[[rehypeKatex, { trust: false, maxExpand: 200, throwOnError: false }]]}
      components={COMPONENTS}
      urlTransform={urlTransform}
    >
      {text}
    </ReactMarkdown>
  )
}
